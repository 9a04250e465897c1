"""What an experiment is, and what is found by it: a verdict, and the exchange that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus

#: `accepted`: taken, and with the effect it should have, as far as that shows. `ignored`: taken, without any. `refused`: an error
#: for this request alone. `down`: no answer, or none that says anything. `untried`: something that it needs did not work.
Verdict = Literal["accepted", "ignored", "refused", "down", "untried"]
Body = dict[str, Any]


class Evidence(Struct, frozen=True, kw_only=True):
    """One exchange: the request, the status of the answer (None where none came), and the beginning of what came."""

    request: str
    body: Any
    status: int | None
    excerpt: str


class ProbeFinding(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    verdict: Verdict
    #: What was seen, in words.
    said: str
    evidence: Evidence | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """An answer that was taken for one: the response in it, and the tokens that the plainest request of all is counted as."""

    response: Response
    least_tokens: int | None
    least_text: str

    @property
    def text(self) -> str:
        return text_of(self.response)

    @property
    def calls(self) -> list[str]:
        return [item.name for item in self.response.output if isinstance(item, FunctionCall | CustomToolCall)]

    @property
    def growth(self) -> int | None:
        """How many tokens more were counted than for the plainest request; None where they are not told."""
        if self.response.usage is None or self.least_tokens is None:
            return None
        return self.response.usage.input_tokens - self.least_tokens

    @property
    def was_cut(self) -> bool:
        """Whether a limit ended it: it may have been about to show what it did not."""
        return self.response.status == ResponseStatus.INCOMPLETE


#: Whether an answer shows an effect, and in words what it shows.
Inspection = Callable[[Observation], tuple[bool, str]]


class Experiment(Struct, frozen=True):
    """One thing to try."""

    id: str
    title: str
    body: Body
    look: Inspection | None = None
    #: Experiments that must have been accepted, or this one shows nothing.
    needs: tuple[str, ...] = ()
    streams: bool = False
    #: Where it is sent, if not where turns are asked for.
    path: str = ""


class Choice(Struct, frozen=True):
    """Several things that are tried at once, and one by one only if that is refused."""

    id: str
    title: str
    body: Body
    members: dict[str, Body]
    needs: tuple[str, ...] = ()


Step = Experiment | Choice


# What an answer shows.


def is_counted(seen: Observation) -> tuple[bool, str]:
    """Whether something long was read: the answer speaks of it, or it is charged for."""
    if LAMP in seen.text:
        return True, "the answer speaks of it"
    if seen.growth is None:
        return True, "taken; whether it was read is not counted"
    return seen.growth >= LEAST_GROWTH, f"{seen.growth} tokens were counted for it"


def has_effect(seen: Observation) -> tuple[bool, str]:
    """Whether something that is no text was looked at."""
    if seen.growth == 0 and seen.text == seen.least_text:
        return False, "not a token was counted for it, and the answer is the same"
    return True, "taken"


def calls_tool(seen: Observation) -> tuple[bool, str]:
    """Whether a tool was called that had to be."""
    if seen.calls:
        return True, f"called: {', '.join(seen.calls)}"
    return seen.was_cut, f"no call came, but {_shown(seen)}"


def calls_two_tools(seen: Observation) -> tuple[bool, str]:
    if len(seen.calls) > 1:
        return True, f"called: {', '.join(seen.calls)}"
    return seen.was_cut, f"{len(seen.calls)} call came, though two were asked for"


def calls_no_tool(seen: Observation) -> tuple[bool, str]:
    if seen.calls:
        return False, f"called all the same: {', '.join(seen.calls)}"
    return True, "no call came"


def counts_tools(seen: Observation) -> tuple[bool, str]:
    """Whether tools that were offered reach the model: it calls one, or at least they are charged for."""
    if seen.calls:
        return True, f"called: {', '.join(seen.calls)}"
    if seen.growth is not None and seen.growth < LEAST_TOOL:
        return False, f"no call came, and {seen.growth} tokens were counted for the tool"
    return True, "taken; the model called none"


def is_json(seen: Observation) -> tuple[bool, str]:
    return seen.was_cut or isinstance(_json_in(seen.text), dict), _shown(seen)


def is_person_json(seen: Observation) -> tuple[bool, str]:
    """Whether a schema was obeyed: a name and an age, and nothing else."""
    value = _json_in(seen.text)
    obeyed = isinstance(value, dict) and value.keys() == {"name", "age"} and isinstance(value["age"], int)
    return seen.was_cut or obeyed, _shown(seen)


def reports_truncation(seen: Observation) -> tuple[bool, str]:
    """Whether the server tells that a limit ended its answer."""
    if seen.was_cut:
        return True, "it says that the answer was cut"
    return False, "it does not say that the answer was cut"


def text_of(response: Response) -> str:
    """All that was said in words."""
    parts = [part for item in response.output for part in getattr(item, "content", None) or ()]
    return "".join(getattr(part, "text", "") for part in parts)


def _json_in(text: str) -> Any:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return None


def _shown(seen: Observation) -> str:
    return f"the answer is {excerpt(seen.text, 60)!r}"


def excerpt(data: bytes | str, limit: int = 300) -> str:
    """The beginning of something, on one line."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text[: limit * 2].split())
    return line if len(line) <= limit and len(text) <= limit * 2 else line[:limit] + "…"


LAMP: Final = "lamp"
#: These look at what the answer says, which takes some tokens.
READING_INSPECTIONS: Final[tuple[Inspection, ...]] = (
    calls_tool,
    calls_two_tools,
    calls_no_tool,
    counts_tools,
    is_json,
    is_person_json,
)
#: A text that cannot be read without being charged for: more than eighty tokens, whatever counts them.
LONG_TEXT: Final = f"The {LAMP} stands on the table. " * 14
LEAST_GROWTH: Final = 60
LEAST_TOOL: Final = 15
