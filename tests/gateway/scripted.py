"""A network without sockets: each request gets the next answer of a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import Struct

from antiphon.config import Config, Timeouts, UpstreamConfig
from antiphon.errors import ApiError
from antiphon.gateway.routes import Routes
from antiphon.gateway.upstreams import Target

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


class Asked(Struct, frozen=True):
    """What was sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class ScriptedAnswer:
    """Pieces in order; an error among them is raised there."""

    def __init__(self, pieces: Sequence[bytes | ApiError], headers: Mapping[str, str], status: int = 200) -> None:
        self.status = status
        self.headers = headers
        self.aborted = False
        self._pieces = pieces

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, ApiError):
                raise piece
            yield piece

    def abort(self) -> None:
        self.aborted = True


class ScriptedTransport:
    """Gives its answers in turn; an error is raised instead of one."""

    def __init__(self, *answers: ScriptedAnswer | ApiError) -> None:
        self.asked: list[Asked] = []
        self._answers = list(answers)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> ScriptedAnswer:
        assert timeouts.total > 0
        self.asked.append(Asked(method, url, dict(headers), body))
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def close(self) -> None:
        pass


def target(dialect: str = "chat", **settings: object) -> Target:
    """An upstream that serves every model."""
    upstream = UpstreamConfig(name="lab", dialect=dialect, base_url="http://lab/v1", models=["*"], **settings)  # type: ignore[arg-type]
    return Routes(Config(upstreams=[upstream]), {}, {}).find("m")
