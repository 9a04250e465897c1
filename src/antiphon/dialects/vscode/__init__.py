"""The VS Code dialect: the language model API of the editor as JSON. It has clients only, no servers."""

from antiphon.dialects.vscode.errors import error_from_hub
from antiphon.dialects.vscode.request_in import request_to_hub
from antiphon.dialects.vscode.stream_out import EventsFromHub, response_from_hub

__all__ = ["EventsFromHub", "error_from_hub", "request_to_hub", "response_from_hub"]
