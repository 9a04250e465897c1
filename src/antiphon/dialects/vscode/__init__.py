"""The VS Code dialect: the language model API of the editor as JSON. It has clients only, no servers."""

from antiphon.dialects.vscode.errors_from_hub import error_from_hub
from antiphon.dialects.vscode.events_from_hub import EventsFromHub
from antiphon.dialects.vscode.request_to_hub import request_to_hub
from antiphon.dialects.vscode.response_from_hub import response_from_hub

__all__ = ["EventsFromHub", "error_from_hub", "request_to_hub", "response_from_hub"]
