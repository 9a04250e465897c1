"""The types of experiments and findings, and the inspections that judge an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus

#: `accepted`: accepted, with the expected effect as far as it is visible. `ignored`: accepted without effect.
#: `refused`: an error for this request alone. `down`: no answer, or no usable one. `untried`: an experiment that it
#: needs was not accepted.
Verdict = Literal["accepted", "ignored", "refused", "down", "untried"]
Body = dict[str, Any]


class Evidence(Struct, frozen=True, kw_only=True):
    """One exchange: the request, the status of the answer (None without an answer), and the start of its body."""

    request: str
    body: Any
    status: int | None
    excerpt: str


class ProbeFinding(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    verdict: Verdict
    #: The observation, as text. Its name in JSON is part of the output of `antiphon probe --json`.
    detail: str = msgspec.field(name="said")
    evidence: Evidence | None = None
    #: The largest accepted number, if the experiment looked for it and a larger one was refused.
    limit: int | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """The response to an experiment, beside the tokens and the text of the response to the minimal request."""

    response: Response
    baseline_tokens: int | None
    baseline_text: str

    @property
    def text(self) -> str:
        return text_of(self.response)

    @property
    def calls(self) -> list[str]:
        return [item.name for item in self.response.output if isinstance(item, FunctionCall | CustomToolCall)]

    @property
    def growth(self) -> int | None:
        """Input tokens beyond those of the minimal request; None if the server reports no usage."""
        if self.response.usage is None or self.baseline_tokens is None:
            return None
        return self.response.usage.input_tokens - self.baseline_tokens

    @property
    def is_truncated(self) -> bool:
        """Whether a limit ended the answer, so that a missing effect proves nothing."""
        return self.response.status == ResponseStatus.INCOMPLETE


#: Returns whether an answer shows an effect, and a description.
Inspection = Callable[[Observation], tuple[bool, str]]


class Experiment(Struct, frozen=True):
    """One request to try."""

    id: str
    title: str
    body: Body
    inspection: Inspection | None = None
    #: Experiments that must be accepted first; else this one proves nothing.
    needs: tuple[str, ...] = ()
    streams: bool = False
    #: The path, if it is not the path of turns.
    path: str = ""


class Choice(Struct, frozen=True):
    """Several fields that are tried in one request, and one by one only if that request is refused."""

    id: str
    title: str
    body: Body
    members: dict[str, Body]
    needs: tuple[str, ...] = ()


class Bound(Struct, frozen=True):
    """A number that servers limit, such as the number of tools. `largest` is tried first; if it is refused, the largest
    accepted number is found by bisection."""

    id: str
    title: str
    make_body: Callable[[int], Body]
    largest: int
    needs: tuple[str, ...] = ()

    @property
    def body(self) -> Body:
        return self.make_body(self.largest)


Step = Experiment | Choice | Bound


# Inspections


def is_counted(observation: Observation) -> tuple[bool, str]:
    """Whether a long text reached the model: the answer mentions it, or its tokens are counted."""
    if LONG_TEXT_WORD in observation.text:
        return True, "the answer mentions the text"
    if observation.growth is None:
        return True, "answered; the server reports no usage, so the effect is unknown"
    return observation.growth >= MIN_TEXT_TOKENS, f"{observation.growth} more input tokens counted"


def has_effect(observation: Observation) -> tuple[bool, str]:
    """Whether content other than text reached the model."""
    if observation.growth == 0 and observation.text == observation.baseline_text:
        return False, "no input tokens counted for it, and the answer is unchanged"
    return True, "answered"


def calls_tool(observation: Observation) -> tuple[bool, str]:
    """Whether the model called a tool that it had to call."""
    if observation.calls:
        return True, f"called: {', '.join(observation.calls)}"
    return observation.is_truncated, f"no tool call; {_describe_text(observation)}"


def calls_two_tools(observation: Observation) -> tuple[bool, str]:
    if len(observation.calls) > 1:
        return True, f"called: {', '.join(observation.calls)}"
    return observation.is_truncated, f"expected 2 tool calls, got {len(observation.calls)}"


def calls_no_tool(observation: Observation) -> tuple[bool, str]:
    if observation.calls:
        return False, f"called although calls were forbidden: {', '.join(observation.calls)}"
    return True, "no tool call"


def counts_tools(observation: Observation) -> tuple[bool, str]:
    """Whether tools reach the model: it calls one, or their tokens are counted."""
    if observation.calls:
        return True, f"called: {', '.join(observation.calls)}"
    if observation.growth is not None and observation.growth < MIN_TOOL_TOKENS:
        return False, f"no tool call, and {observation.growth} more input tokens counted for the tool"
    return True, "answered; the model called no tool"


def is_json(observation: Observation) -> tuple[bool, str]:
    return observation.is_truncated or isinstance(_json_in(observation.text), dict), _describe_text(observation)


def is_person_json(observation: Observation) -> tuple[bool, str]:
    """Whether the answer follows the schema: a name and an age, and no other property."""
    value = _json_in(observation.text)
    follows_schema = isinstance(value, dict) and value.keys() == {"name", "age"} and isinstance(value["age"], int)
    return observation.is_truncated or follows_schema, _describe_text(observation)


def reports_truncation(observation: Observation) -> tuple[bool, str]:
    """Whether the server reports that a limit ended its answer."""
    if observation.is_truncated:
        return True, "the server reports that the answer was truncated"
    return False, "the server does not report that the answer was truncated"


def text_of(response: Response) -> str:
    """Return the text of all content parts."""
    parts = [part for item in response.output for part in getattr(item, "content", None) or ()]
    return "".join(getattr(part, "text", "") for part in parts)


def _json_in(text: str) -> Any:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return None


def _describe_text(observation: Observation) -> str:
    return f"the answer is {excerpt(observation.text, 60)!r}"


def excerpt(data: bytes | str, limit: int = 300) -> str:
    """Return the start of a text, on one line."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text[: limit * 2].split())
    return line if len(line) <= limit and len(text) <= limit * 2 else line[:limit] + "…"


LONG_TEXT_WORD: Final = "lamp"
#: Inspections that read the answer, which therefore needs more tokens.
READING_INSPECTIONS: Final[tuple[Inspection, ...]] = (
    calls_tool,
    calls_two_tools,
    calls_no_tool,
    counts_tools,
    is_json,
    is_person_json,
)
#: A text whose tokens must show in the usage: more than eighty tokens with any tokenizer.
LONG_TEXT: Final = f"The {LONG_TEXT_WORD} stands on the table. " * 14
MIN_TEXT_TOKENS: Final = 60
MIN_TOOL_TOKENS: Final = 15
