"""The Python API for calling a model: `Client` and `AsyncClient`, over HTTP, SSE and WebSocket, for any dialect."""

from antiphon.client.asynchronous import AsyncClient
from antiphon.client.blocking import BlockingSocket, BlockingStream, Client
from antiphon.client.response_content import as_input, function_calls, output_text
from antiphon.client.retries import Retries
from antiphon.client.sockets import ResponseSocket
from antiphon.client.stream import ResponseStream
from antiphon.client.tool_loop import ToolCall, ToolRun
from antiphon.config import Timeouts

__all__ = [
    "AsyncClient",
    "BlockingSocket",
    "BlockingStream",
    "Client",
    "ResponseSocket",
    "ResponseStream",
    "Retries",
    "Timeouts",
    "ToolCall",
    "ToolRun",
    "as_input",
    "function_calls",
    "output_text",
]
