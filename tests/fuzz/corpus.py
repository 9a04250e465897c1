"""What is damaged: bodies as real clients send them, and recorded answers of upstreams."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from tests.gateway.scripted import target

from antiphon.gateway.routes import Target
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
PATHS: Final = {
    "responses": ("/v1/responses", "/v1/responses"),
    "chat": ("/v1/chat/completions", "/v1/chat/completions"),
    "messages": ("/v1/messages?beta=true", "/v1/messages?beta=true"),
    "gemini": ("/v1beta/models/mock-1:generateContent", "/v1beta/models/mock-1:streamGenerateContent?alt=sse"),
}
DIALECTS: Final = tuple(PATHS)


@cache
def streams(dialect: str) -> list[bytes]:
    return _read(dialect, "*.ndjson" if dialect == "ollama" else "*.sse")


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
