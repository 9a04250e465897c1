"""Servers with constraints that real ones have, on top of the strict fakes: what they refuse, and what they forget in
silence."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.dialect import ServerDialectName
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.harness import DialectBehavior, FakeServer
from antiphon.testing.messages.errors import messages_error
from antiphon.testing.messages.rules import MessagesLimits
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.rules import ServerLimits
from antiphon.testing.script import PlainReply, ReceivedRequest, ScriptedTurn, Step, error

Body = dict[str, Any]


class Constraint(Struct, frozen=True, kw_only=True):
    """One thing that a server does not do. It is found by the experiments in `shows`, whose verdicts must be these."""

    name: str
    shows: dict[str, str]
    refuses: Callable[[Body], bool] = lambda _: False
    forgets: Callable[[Body], Body] = lambda body: body
    status: int = 400
    #: Of constraints with one of these in common a server has only one: nothing would be left to say it with.
    group: str = ""


class Constrained:
    """DialectBehavior with constraints."""

    def __init__(
        self, inner: DialectBehavior, constraints: list[Constraint], dialect: ServerDialectName = "responses"
    ) -> None:
        self._inner = inner
        self._constraints = constraints
        self._dialect = dialect

    def answer_other_path(self, received: ReceivedRequest) -> PlainReply | None:
        return self._inner.answer_other_path(received)

    def find_refusal(self, received: ReceivedRequest) -> PlainReply | None:
        body = received.json
        for each in self._constraints if isinstance(body, dict) else ():
            if each.refuses(body):
                message = f"this server does not take it: {each.name}"
                return (
                    messages_error(each.status, message) if self._dialect == "messages" else error(each.status, message)
                )
        return self._inner.find_refusal(self._read(received))

    def improvise(self, received: ReceivedRequest) -> ScriptedTurn:
        return self._inner.improvise(self._read(received))

    def wants_stream(self, received: ReceivedRequest) -> bool:
        return self._inner.wants_stream(received)

    def render_stream(self, turn: ScriptedTurn, received: ReceivedRequest) -> list[Step]:
        return self._inner.render_stream(turn, self._read(received))

    def render_body(self, turn: ScriptedTurn, received: ReceivedRequest) -> bytes:
        return self._inner.render_body(turn, self._read(received))

    def _read(self, received: ReceivedRequest) -> ReceivedRequest:
        """The request without what the server does not look at."""
        body = received.json
        if not isinstance(body, dict):
            return received
        for each in self._constraints:
            body = each.forgets(body)
        return replace(received, body=msgspec.json.encode(body))


def server_of(dialect: ServerDialectName, constraints: list[Constraint]) -> FakeServer:
    return FakeServer(Constrained(INNER[dialect](), constraints, dialect))


def drawn(dialect: ServerDialectName, seed: int, count: int = 6) -> list[Constraint]:
    """Some of the constraints that servers of this dialect have, in the order in which they were drawn."""
    luck = random.Random(seed)
    chosen: list[Constraint] = []
    for each in luck.sample(CONSTRAINTS[dialect], len(CONSTRAINTS[dialect])):
        if len(chosen) < count and not (each.group and any(each.group == other.group for other in chosen)):
            chosen.append(replace(each, status=luck.choice((400, 400, 422, 500))))
    return chosen


def items(body: Body) -> list[Body]:
    given = body.get("input")
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def parts(body: Body) -> list[Body]:
    """Parts of every message, in any dialect."""
    contents = [holder.get("content") for holder in [*items(body), *messages(body)]]
    return [part for content in contents if isinstance(content, list) for part in content]


def has_item(kind: str) -> Callable[[Body], bool]:
    return lambda body: any(item.get("type") == kind for item in items(body))


def has_part(kind: str) -> Callable[[Body], bool]:
    return lambda body: any(part.get("type") == kind for part in parts(body))


def has_role(role: str) -> Callable[[Body], bool]:
    return lambda body: any(one.get("role") == role for one in [*items(body), *messages(body)])


def has_field(name: str) -> Callable[[Body], bool]:
    return lambda body: name in body


def on_items(name: str) -> Callable[[Body], bool]:
    return lambda body: any(name in item for item in items(body))


def messages(body: Body) -> list[Body]:
    given = body.get("messages")
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def forgets(name: str) -> Callable[[Body], Body]:
    return lambda body: {key: value for key, value in body.items() if key != name}


def effort_of(body: Body) -> str | None:
    effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort")
    return effort if isinstance(effort, str) else None


def _calls_with(content: Any) -> Callable[[Body], bool]:
    return lambda body: any("tool_calls" in one and one.get("content", "absent") == content for one in messages(body))


def _field(name: str) -> Constraint:
    return Constraint(name=f"no {name}", refuses=has_field(name), shows={f"field.{name}": "refused"})


RESPONSES: Final = [
    Constraint(name="no developer", refuses=has_role("developer"), shows={"developer": "refused"}),
    Constraint(name="no system", refuses=has_role("system"), shows={"system": "refused"}, group="system"),
    Constraint(
        name="instructions are forgotten",
        forgets=forgets("instructions"),
        shows={"instructions": "ignored"},
        group="system",
    ),
    Constraint(
        name="system first",
        refuses=lambda body: any(item.get("role") == "system" for item in items(body)[1:]),
        shows={"system": "accepted", "system.middle": "refused"},
        group="system",
    ),
    Constraint(
        name="no output_text",
        refuses=has_part("output_text"),
        shows={"assistant.output_text": "refused"},
        group="assistant",
    ),
    Constraint(
        name="no refusals", refuses=has_part("refusal"), shows={"assistant.refusal": "refused"}, group="assistant"
    ),
    Constraint(
        name="no calls",
        refuses=has_item("function_call"),
        shows={"calls.paired": "refused", "calls.as-text": "accepted"},
    ),
    Constraint(
        name="no reasoning items",
        refuses=has_item("reasoning"),
        shows={"reasoning.content": "refused"},
        group="reasoning",
    ),
    Constraint(
        name="open reasoning",
        refuses=lambda body: any(item.get("type") == "reasoning" and not item.get("content") for item in items(body)),
        shows={"reasoning.content": "accepted", "reasoning.summary": "refused"},
        group="reasoning",
    ),
    Constraint(name="no images", refuses=has_part("input_image"), shows={"image": "refused"}),
    Constraint(name="no files", refuses=has_part("input_file"), shows={"file": "refused"}),
    Constraint(
        name="no formats",
        refuses=lambda body: "format" in (body.get("text") or {}),
        shows={"format.schema": "refused", "format.json": "refused"},
        group="format",
    ),
    Constraint(
        name="formats are forgotten",
        forgets=forgets("text"),
        shows={"format.schema": "ignored", "format.json": "ignored"},
        group="format",
    ),
    Constraint(name="no ids", refuses=on_items("id"), shows={"item.ids": "refused"}),
    Constraint(name="no statuses", refuses=on_items("status"), shows={"item.status": "refused"}),
    Constraint(name="no phases", refuses=on_items("phase"), shows={"item.phase": "refused"}),
    Constraint(
        name="no cache_control",
        refuses=lambda body: any("cache_control" in part for part in parts(body)),
        shows={"item.cache_control": "refused"},
    ),
    Constraint(
        name="no custom tools",
        refuses=lambda body: any(tool.get("type") == "custom" for tool in body.get("tools") or ()),
        shows={"tools.custom": "refused"},
    ),
    Constraint(
        name="no string input",
        refuses=lambda body: isinstance(body.get("input"), str),
        shows={"input.string": "refused"},
        group="form",
    ),
    Constraint(name="no limit", refuses=has_field("max_output_tokens"), shows={"limit.max_output_tokens": "refused"}),
    Constraint(
        name="few efforts",
        refuses=lambda body: effort_of(body) not in (None, "low", "medium", "high"),
        shows={"effort.low": "accepted", "effort.minimal": "refused", "effort.xhigh": "refused"},
        group="effort",
    ),
    Constraint(name="no effort", refuses=has_field("reasoning"), shows={"effort.low": "refused"}, group="effort"),
    Constraint(
        name="choices are forgotten",
        forgets=forgets("tool_choice"),
        shows={"tools.required": "ignored", "tools.none": "ignored"},
    ),
    *map(
        _field,
        ("top_logprobs", "metadata", "presence_penalty", "service_tier", "safety_identifier", "store", "include"),
    ),
]
CHAT: Final = [
    Constraint(name="no developer", refuses=has_role("developer"), shows={"developer": "refused"}),
    Constraint(
        name="system first",
        refuses=lambda body: any(one.get("role") == "system" for one in messages(body)[1:]),
        shows={"system": "accepted", "system.middle": "refused"},
    ),
    Constraint(
        name="only max_completion_tokens",
        refuses=has_field("max_tokens"),
        shows={"limit.max_tokens": "refused", "limit.max_completion_tokens": "accepted"},
        group="limit",
    ),
    Constraint(
        name="only max_tokens",
        refuses=has_field("max_completion_tokens"),
        shows={"limit.max_tokens": "accepted", "limit.max_completion_tokens": "refused"},
        group="limit",
    ),
    Constraint(name="no null beside calls", refuses=_calls_with(None), shows={"calls.null": "refused"}, group="calls"),
    Constraint(
        name="no content beside calls",
        refuses=lambda body: any("tool_calls" in one and not one.get("content", "x") for one in messages(body)),
        shows={"calls.null": "refused", "calls.paired": "refused", "calls.absent": "accepted"},
        group="calls",
    ),
    Constraint(
        name="no results",
        refuses=has_role("tool"),
        shows={"calls.paired": "refused", "calls.as-text": "accepted"},
        group="calls",
    ),
    Constraint(name="no images", refuses=has_part("image_url"), shows={"image": "refused"}, group="parts"),
    Constraint(
        name="no strings of the user's",
        refuses=lambda body: any(
            one.get("role") == "user" and isinstance(one["content"], str) for one in messages(body)
        ),
        shows={"user.string": "refused"},
        group="parts",
    ),
    Constraint(
        name="no schemas",
        refuses=lambda body: (body.get("response_format") or {}).get("type") == "json_schema",
        shows={"format.schema": "refused", "format.json": "accepted"},
        group="format",
    ),
    Constraint(
        name="formats are forgotten",
        forgets=forgets("response_format"),
        shows={"format.schema": "ignored", "format.json": "ignored"},
        group="format",
    ),
    Constraint(
        name="no forced tools",
        refuses=lambda body: body.get("tool_choice") not in (None, "auto", "none"),
        shows={"tools.required": "refused", "tools.named": "refused"},
        group="choice",
    ),
    Constraint(
        name="choices are forgotten",
        forgets=forgets("tool_choice"),
        shows={"tools.required": "ignored"},
        group="choice",
    ),
    Constraint(
        name="no strict tools",
        refuses=lambda body: any("strict" in tool.get("function", {}) for tool in body.get("tools") or ()),
        shows={"tools.strict": "refused"},
    ),
    Constraint(name="no stream_options", refuses=has_field("stream_options"), shows={"stream.usage": "refused"}),
    Constraint(
        name="few efforts",
        refuses=lambda body: effort_of(body) not in (None, "low", "medium", "high"),
        shows={"effort.low": "accepted", "effort.minimal": "refused", "effort.xhigh": "refused"},
        group="effort",
    ),
    Constraint(
        name="no effort", refuses=has_field("reasoning_effort"), shows={"effort.low": "refused"}, group="effort"
    ),
    *map(_field, ("logprobs", "seed", "user", "metadata", "presence_penalty", "parallel_tool_calls", "service_tier")),
]
MESSAGES: Final = [
    Constraint(name="no images", refuses=has_part("image"), shows={"image": "refused"}),
    Constraint(name="no documents", refuses=has_part("document"), shows={"document": "refused"}),
    Constraint(
        name="no strict tools",
        refuses=lambda body: any("strict" in tool for tool in body.get("tools") or ()),
        shows={"tools.strict": "refused"},
    ),
    Constraint(name="no output_config", refuses=has_field("output_config"), shows={"format.output_config": "refused"}),
    Constraint(
        name="no adaptive thinking",
        refuses=lambda body: (body.get("thinking") or {}).get("type") == "adaptive",
        shows={"thinking.adaptive": "refused", "thinking.budget": "accepted"},
        group="thinking",
    ),
    Constraint(
        name="no thinking",
        refuses=has_field("thinking"),
        shows={"thinking.adaptive": "refused", "thinking.budget": "refused"},
        group="thinking",
    ),
    Constraint(
        name="no tool use",
        refuses=lambda body: has_part("tool_use")(body) or has_part("tool_result")(body),
        shows={"calls.paired": "refused", "calls.as-text": "accepted"},
    ),
    Constraint(name="no cache_control", refuses=has_field("cache_control"), shows={"cache.auto": "refused"}),
    *map(_field, ("top_k", "metadata", "stop_sequences", "service_tier", "top_p")),
]
CONSTRAINTS: Final[dict[ServerDialectName, list[Constraint]]] = {
    "responses": RESPONSES,
    "chat": CHAT,
    "messages": MESSAGES,
}
INNER: Final[dict[ServerDialectName, Callable[[], DialectBehavior]]] = {
    "responses": ResponsesBehavior,
    "chat": ChatBehavior,
    "messages": lambda: MessagesBehavior(MessagesLimits()),
}

#: Without parts much else cannot be asked at all, so this one stands alone.
ONLY_STRINGS: Final = Constraint(
    name="no parts of the user's text",
    refuses=lambda body: any(part.get("type") == "input_text" for part in parts(body)),
    shows={"user.parts": "refused"},
)

#: D-1, to the letter of the published table: messages and outputs are the only items, `output_text` stands in no input,
#: and a
#: provider behind refuses outputs, since no call is ever told to it.
VERCEL: Final = [
    Constraint(
        name="Invalid input",
        refuses=lambda body: any(
            item.get("type", "message") not in ("message", "function_call_output") for item in items(body)
        ),
        shows={"calls.paired": "refused"},
    ),
    Constraint(name="Invalid input", refuses=has_part("output_text"), shows={"assistant.output_text": "refused"}),
    Constraint(
        name="The number of toolResult blocks exceeds the number of toolUse blocks of previous turn.",
        refuses=has_item("function_call_output"),
        shows={"result.alone": "refused", "result.after-text": "refused"},
        status=500,
    ),
]


def vercel() -> FakeServer:
    return FakeServer(Constrained(ResponsesBehavior(ServerLimits(strict=False)), VERCEL))
