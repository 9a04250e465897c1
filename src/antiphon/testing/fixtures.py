"""Pytest fixtures that start strict, scripted servers.

Use them with `pytest_plugins = ["antiphon.testing.fixtures"]` in `conftest.py`. Each fixture is a function that starts
a server on a free loopback port. It takes the arguments of the server: a script, and options such as `key`. All servers
stop at the end of the test, which fails if a script failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import pytest

from antiphon.testing.chat.server import ChatServer
from antiphon.testing.gemini.server import GeminiServer
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.server import MessagesServer
from antiphon.testing.ollama.server import OllamaServer
from antiphon.testing.responses.server import ResponsesServer

P = ParamSpec("P")
S = TypeVar("S", bound=FakeServer)
#: The types of the fixtures, for annotations.
StartChatServer = Callable[..., ChatServer]
StartResponsesServer = Callable[..., ResponsesServer]
StartMessagesServer = Callable[..., MessagesServer]
StartGeminiServer = Callable[..., GeminiServer]
StartOllamaServer = Callable[..., OllamaServer]


@pytest.fixture
def start_chat_server() -> Iterator[StartChatServer]:
    """Start a `ChatServer`: `server = start_chat_server([turn(text("Hello"))])`."""
    with _server_starter(ChatServer) as start:
        yield start


@pytest.fixture
def start_responses_server() -> Iterator[StartResponsesServer]:
    """Start a `ResponsesServer`."""
    with _server_starter(ResponsesServer) as start:
        yield start


@pytest.fixture
def start_messages_server() -> Iterator[StartMessagesServer]:
    """Start a `MessagesServer`."""
    with _server_starter(MessagesServer) as start:
        yield start


@pytest.fixture
def start_gemini_server() -> Iterator[StartGeminiServer]:
    """Start a `GeminiServer`."""
    with _server_starter(GeminiServer) as start:
        yield start


@pytest.fixture
def start_ollama_server() -> Iterator[StartOllamaServer]:
    """Start an `OllamaServer`."""
    with _server_starter(OllamaServer) as start:
        yield start


@contextmanager
def _server_starter(server_type: Callable[P, S]) -> Iterator[Callable[P, S]]:
    """Yield a function that starts servers, and stop them at the end."""
    with ExitStack() as servers:

        def start(*args: P.args, **options: P.kwargs) -> S:
            server = server_type(*args, **options)
            servers.enter_context(server)
            return server

        yield start
