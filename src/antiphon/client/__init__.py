"""The Python API for calling a model: `Client` and `AsyncClient`, over HTTP, SSE and WebSocket, for any dialect."""

from antiphon.client.asynchronous import AsyncClient
from antiphon.client.blocking import BlockingSocket, BlockingStream, Client
from antiphon.client.images import image_from_file
from antiphon.client.model_list import Model
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
    "Model",
    "ResponseSocket",
    "ResponseStream",
    "Retries",
    "Timeouts",
    "ToolCall",
    "ToolRun",
    "image_from_file",
]
