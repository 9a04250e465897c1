"""Requests to servers are sent in one way, and whole bodies are read in one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.sources import REPO

pytestmark = pytest.mark.without_coverage
SOURCE = REPO / "src" / "antiphon"
BODY_READER = "upstream/body.py"
#: The functions that give the pieces of a body, with their numbers of arguments, and the modules that may call them.
PIECE_SOURCES = {"pieces": 0, "flow_of": 1, "flow_of_pieces": 1, "take_body": 0}
PIECE_READERS = {
    BODY_READER,
    "api/completions.py",  # passes a stream of text completions on
    "client/event_sources.py",  # decodes a stream piece by piece
    "gateway/replay.py",  # checks a recorded answer piece by piece
    "gateway/turn.py",  # passes a stream to the pipe, and records its pieces in the trace
    "upstream/transport.py",  # the flow of a response that has only pieces
}
#: What sends requests without `antiphon.client`: modules to import, and methods of a transport to call.
SENDING_MODULES = ("http.client", "httpx", "socket", "ssl", "urllib.request", "antiphon.upstream.body")
SENDING_METHODS = frozenset({"send", "open_connection", "create_connection"})


@pytest.mark.slow
def test_pieces_of_bodies_are_read_in_the_listed_modules() -> None:
    readers = {
        module
        for module, tree in _trees()
        if any(_reads_pieces(node) for node in ast.walk(tree) if isinstance(node, ast.Call))
    }
    assert readers == PIECE_READERS


@pytest.mark.slow
def test_commands_send_requests_only_with_the_client() -> None:
    """A command may pass a transport to the client, to the checks and to the probe. It never uses one itself."""
    senders = {module: uses for module, tree in _trees() if module.startswith("cli/") and (uses := [*_sends(tree)])}
    assert senders == {}


@pytest.mark.parametrize(
    "code",
    [
        "import socket",
        "import urllib.request",
        "from http.client import HTTPConnection",
        "from antiphon.upstream.body import read_body",
        "await transport.send('GET', url, {}, b'', timeouts)",
    ],
)
def test_sending_is_recognised(code: str) -> None:
    assert len([*_sends(ast.parse(code))]) == 1


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _reads_pieces(call: ast.Call) -> bool:
    return PIECE_SOURCES.get(_called_name(call)) == len(call.args)


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _sends(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.startswith(SENDING_MODULES))
            case ast.ImportFrom(module=str() as module) if module.startswith(SENDING_MODULES):
                yield module
            case ast.Call() if _called_name(node) in SENDING_METHODS:
                yield ast.unparse(node)
