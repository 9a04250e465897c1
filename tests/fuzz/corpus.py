"""What is damaged: bodies as real clients send them, and recorded answers of upstreams."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.mutate import damaged_stream
from tests.gateway.scripted import target

from antiphon.dialects.dialect import ServerDialect, ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.gateway.upstreams import Target
from antiphon.profiles import load_profile, profile_names

HERE: Final = Path(__file__).parent
RECORDINGS: Final = HERE.parent / "recordings"

#: Bodies of `POST /v1/responses` by the client that sends such ones.
BODIES: Final = {file.stem: file.read_bytes() for file in sorted((HERE / "bodies").glob("*.json"))}
#: Bodies of clients that speak other dialects, by dialect and client.
OTHER_BODIES: Final = {
    (file.parent.name, file.stem): file.read_bytes() for file in sorted((HERE / "bodies").glob("*/*.json"))
}
#: Where a client of each dialect asks, for an answer of one piece and for a stream.
PATHS: Final[dict[Any, tuple[str, str]]] = {
    "responses": ("/v1/responses", "/v1/responses"),
    "chat": ("/v1/chat/completions", "/v1/chat/completions"),
    "messages": ("/v1/messages?beta=true", "/v1/messages?beta=true"),
    "gemini": ("/v1beta/models/mock-1:generateContent", "/v1beta/models/mock-1:streamGenerateContent?alt=sse"),
    "ollama": ("/api/chat", "/api/chat"),
}
#: The path of bodies that belong to another endpoint, by dialect and client.
OTHER_PATHS: Final = {("ollama", "generate"): ("/api/generate", "/api/generate")}
DIALECTS: Final[tuple[ServerDialectName, ...]] = tuple(PATHS)


def paths_of(body: tuple[str, str]) -> tuple[str, str]:
    """Where a body is sent, by its dialect and client."""
    return OTHER_PATHS.get(body) or PATHS[body[0]]


def damaged_stream_of(dialect: str, chance: Random) -> bytes:
    """A stream of a server, with damage."""
    return damaged_stream(chance.choice(streams(dialect)), chance, _server(dialect).framing)


def stream_type(dialect: str) -> str:
    """The content type of streams of a server."""
    return _server(dialect).stream_type


def _server(dialect: Any) -> ServerDialect:
    return SERVER_DIALECTS[dialect]


@cache
def streams(dialect: str) -> list[bytes]:
    return _read(dialect, "*.ndjson" if _server(dialect).framing == "json_lines" else "*.sse")


@cache
def answers(dialect: str) -> list[bytes]:
    """Answers of one piece, errors among them."""
    return _read(dialect, "*.json")


@cache
def targets() -> list[Target]:
    """An upstream for each profile that is shipped."""
    return [target(load_profile(name).dialect, profile=name) for name in profile_names()]


def _read(dialect: str, pattern: str) -> list[bytes]:
    found = [file.read_bytes() for file in sorted((RECORDINGS / dialect).glob(pattern))]
    assert len(found) > 10, f"the recordings of {dialect} are not where they were"
    return found
