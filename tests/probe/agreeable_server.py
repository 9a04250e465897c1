"""A server without a network that accepts every experiment with the wanted effect, except those that a test names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from tests.cli.network import FakeAnswer
from tests.probe.probe_runs import make_target

from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.finding import (
    MIN_TEXT_TOKENS,
    MIN_TOOL_TOKENS,
    READING_INSPECTIONS,
    Body,
    Choice,
    Experiment,
    Inspection,
    calls_no_tool,
    calls_tool,
    calls_two_tools,
    counts_tools,
    has_effect,
    is_counted,
    is_json,
    is_person_json,
    reports_truncation,
)
from antiphon.probe.run import BRIEF_TOKENS, READING_TOKENS
from antiphon.probe.samples import TextForm
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.harness import DialectBehavior
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.ollama.server import OllamaBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.script import (
    ReceivedRequest,
    ScriptedTurn,
    ToolCalls,
    error,
    finish,
    interleaved,
    text,
    tool_call,
    turn,
    usage,
)

ORIGIN: Final = "http://127.0.0.1:9"
URL: Final = f"{ORIGIN}/v1"
MODEL: Final = "mock-1"
#: The form of text that the probe tries first.
FIRST_FORM: Final[dict[ServerDialectName, TextForm]] = {
    "responses": "parts",
    "chat": "string",
    "messages": "string",
    "gemini": "string",
    "ollama": "string",
}


class ExpectedRequest(NamedTuple):
    """A request that the probe may send for an experiment."""

    id: str
    url: str
    body: bytes
    inspection: Inspection | None = None


@cache
def expected_requests(dialect: ServerDialectName) -> list[ExpectedRequest]:
    """Every request of every experiment: with each name of the limit, with no limit, and in both forms of text."""
    return list(_expected_requests(dialect))


def _expected_requests(dialect: ServerDialectName) -> Iterator[ExpectedRequest]:
    steps, target = EXPERIMENTS[dialect].steps, make_target(URL, dialect)
    model = {} if dialect == "gemini" else {"model": MODEL}
    forms: tuple[TextForm, ...] = ("parts", "string")

    def limited(body: Body, tokens: int = BRIEF_TOKENS) -> list[bytes]:
        bodies = [body, *(steps.with_token_limit(body, name, tokens) for name in steps.LIMIT_NAMES)]
        return [_canonical({**model, **each}) for each in bodies]

    for form in forms:
        minimal = steps.minimal_body(form)
        for name in steps.LIMIT_NAMES:
            body = _canonical({**model, **steps.with_token_limit(minimal, name, BRIEF_TOKENS)})
            yield ExpectedRequest(f"limit.{name}", target.url(), body)
        if form == FIRST_FORM[dialect]:
            yield from (ExpectedRequest("minimal", target.url(), body) for body in limited(minimal))
        for step in steps.probe_steps(form):
            if isinstance(step, Experiment):
                tokens = READING_TOKENS if step.inspection in READING_INSPECTIONS else BRIEF_TOKENS
                bodies = [_canonical({**model, **step.body})] if step.path else limited(step.body, tokens)
                url = target.url(step.path, streams=step.streams)
                yield from (ExpectedRequest(step.id, url, body, step.inspection) for body in bodies)
            elif isinstance(step, Choice):
                every = step.body
                for member in step.members.values():
                    every = _join(every, member)
                for name, member in step.members.items():
                    for body in (*limited(_join(step.body, member)), *limited(every)):
                        yield ExpectedRequest(f"{step.id}.{name}", target.url(), body)


def experiment_ids(dialect: ServerDialectName) -> set[str]:
    return {request.id for request in expected_requests(dialect)}


class AgreeableServer:
    """A transport. It refuses the requests of the experiments `refused`, and no other requests. To the requests of the
    experiments `ignored` it answers without the effect that they look for."""

    def __init__(
        self, dialect: ServerDialectName, *, refused: Collection[str] = (), ignored: Collection[str] = ()
    ) -> None:
        self._behavior = BEHAVIORS[dialect]()
        self._stream_type = SERVER_DIALECTS[dialect].stream_type
        self._minimal = EXPERIMENTS[dialect].steps.minimal_body(FIRST_FORM[dialect])
        self._refused: set[tuple[str, bytes]] = set()
        self._turns: dict[tuple[str, bytes], ScriptedTurn] = {}
        for id, url, body, inspection in expected_requests(dialect):
            key = (url, body)
            if id in refused:
                self._refused.add(key)
            if inspection is not None:
                with_effect, without_effect = EFFECTS[inspection]
                self._turns[key] = without_effect if id in ignored else with_effect

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> FakeAnswer:
        assert (method, headers["content-type"]) == ("POST", "application/json")
        assert timeouts.total > 0
        decoded = msgspec.json.decode(body)
        key = (url, _canonical(decoded))
        if key in self._refused or _has_wrong_type(decoded):
            return FakeAnswer(error(400, "refused").body, status=400, headers={"content-type": "application/json"})
        return self._answer(self._turns.get(key, PLAIN), url, streams="stream" in url or bool(decoded.get("stream")))

    def _answer(self, answer: ScriptedTurn, url: str, *, streams: bool) -> FakeAnswer:
        """The turn as an answer to the minimal request, since the servers of the tests check what they render."""
        path = url.removeprefix(ORIGIN)
        body = {"model": MODEL, **self._minimal, "stream": streams}
        received = ReceivedRequest(method="POST", path=path, headers={}, body=msgspec.json.encode(body))
        if streams:
            frames = [step for step in self._behavior.render_stream(answer, received) if isinstance(step, bytes)]
            return FakeAnswer(*frames, headers={"content-type": self._stream_type})
        return FakeAnswer(self._behavior.render_body(answer, received), headers={"content-type": "application/json"})

    async def close(self) -> None:
        """Nothing is open."""


def _canonical(body: Any) -> bytes:
    return msgspec.json.encode(body, order="deterministic")


def _has_wrong_type(body: Body) -> bool:
    return 7 in (body.get("input"), body.get("messages"), body.get("contents"))


def _join(one: Body, other: Body) -> Body:
    """Two bodies as one; members that are objects are joined as well."""
    joined = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict):
            joined[name] = {**one[name], **other[name]}
    return joined


def _calls(count: int) -> ToolCalls:
    return interleaved(*(tool_call(f"call_{at}", "get_weather", '{"city":"Paris"}') for at in range(count)))


TOKENS: Final = 10
PLAIN: Final = turn(text("Hello."), usage(TOKENS, 1))
#: For each inspection: the least answer that shows an effect, and the closest answer that shows none.
EFFECTS: Final[dict[Inspection, tuple[ScriptedTurn, ScriptedTurn]]] = {
    is_counted: (
        turn(text("Hello."), usage(TOKENS + MIN_TEXT_TOKENS, 1)),
        turn(text("Hello."), usage(TOKENS + MIN_TEXT_TOKENS - 1, 1)),
    ),
    has_effect: (turn(text("Hello."), usage(TOKENS + 1, 1)), PLAIN),
    calls_tool: (turn(_calls(1), usage(TOKENS, 1)), PLAIN),
    calls_two_tools: (turn(_calls(2), usage(TOKENS, 1)), turn(_calls(1), usage(TOKENS, 1))),
    calls_no_tool: (PLAIN, turn(_calls(1), usage(TOKENS, 1))),
    counts_tools: (
        turn(text("Hello."), usage(TOKENS + MIN_TOOL_TOKENS, 1)),
        turn(text("Hello."), usage(TOKENS + MIN_TOOL_TOKENS - 1, 1)),
    ),
    is_json: (turn(text("{}"), usage(TOKENS, 1)), turn(text("[]"), usage(TOKENS, 1))),
    is_person_json: (turn(text('{"name":"Alice","age":30}'), usage(TOKENS, 1)), turn(text("{}"), usage(TOKENS, 1))),
    reports_truncation: (turn(text("one,"), finish("length"), usage(TOKENS, 1)), PLAIN),
}
BEHAVIORS: Final[dict[ServerDialectName, Callable[[], DialectBehavior]]] = {
    "responses": ResponsesBehavior,
    "chat": ChatBehavior,
    "messages": MessagesBehavior,
    "gemini": GeminiBehavior,
    "ollama": OllamaBehavior,
}
