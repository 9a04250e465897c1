"""One recorded exchange with a server, in one form for every kind of file, and the reasons why others are skipped."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName

Kind = Literal["whole", "stream", "error"]
#: The dialects that recordings are played in.
DIALECTS: Final[tuple[ServerDialectName, ...]] = ("chat", "responses", "messages", "gemini", "ollama")


class Recording(Struct, frozen=True, kw_only=True):
    """A request and its answer. `request` is None where only the answer was recorded."""

    dialect: ServerDialectName
    kind: Kind
    request: dict[str, Any] | None
    model: str
    host: str  # of the server; empty if it was not recorded
    status: int
    headers: dict[str, str]
    answer: bytes
    is_stream: bool
    source: str  # the file and the number of the exchange in it

    @property
    def is_error(self) -> bool:
        return self.status >= 400


class Skipped(Struct, frozen=True, kw_only=True):
    """An exchange or a file that is not played."""

    source: str
    reason: str


ReadResult = Recording | Skipped
