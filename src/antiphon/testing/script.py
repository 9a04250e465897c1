"""What a scripted server is asked (`ReceivedRequest`) and what it is told to answer (`Reply`).

A `ScriptedTurn` says what the model says, piece by piece; each server spells it in its own dialect, as a stream or whole.
`PlainReply` is any answer of one piece, an error say. `RawReply` is the answer to the letter, status line included.
All three may stop at a gate, pause,
and end badly.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from antiphon.protocol.nesting import MAX_NESTING, check_nesting

Ending = Literal["fin", "mid-chunk", "rst", "hang"]
Part = Literal["finish", "usage", "done"]

# A dialect may stand a level or two more around what a client sent, and no server has the gateway's own bound.
FAKE_MAX_NESTING: Final = 2 * MAX_NESTING


class ReceivedRequest(Struct, frozen=True, kw_only=True):
    """One request, as it came. Header names are in lower case; of a header that came twice the values are joined by a comma."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            check_nesting(self.body, FAKE_MAX_NESTING)
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


class Gate:
    """A place in a script where the server waits until the test opens it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._reached = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Lets everyone through, now and later."""
        with self._lock:
            self._open = True
            for loop, passed in self._waiting:
                loop.call_soon_threadsafe(passed.set)

    def wait_reached(self, timeout: float = 60.0) -> None:
        """Returns once a server stands at the gate."""
        if not self._reached.wait(timeout):
            raise TimeoutError(f"no server came to the gate within {timeout} s")

    async def passed(self) -> None:
        """The server's side of it."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._reached.set()
            if self._open:
                return
            self._waiting.append(waiter)
        try:
            await waiter[1].wait()
        finally:
            with self._lock:
                self._waiting.remove(waiter)


# What a model says.


class Text(Struct, frozen=True):
    pieces: tuple[str, ...]


class Reasoning(Struct, frozen=True):
    """Thoughts; where a dialect signs them, with this signature or else one that the server makes."""

    pieces: tuple[str, ...]
    signature: str | None = None


class Redacted(Struct, frozen=True):
    """Thoughts without words, sealed. Dialects that have no such thing say nothing of them."""

    data: str


class Refusal(Struct, frozen=True):
    pieces: tuple[str, ...]


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    pieces: tuple[str, ...]
    kind: Literal["function", "custom"] = "function"


class ToolCalls(Struct, frozen=True):
    """Calls whose pieces come in turns: the first of each, then the second of each."""

    calls: tuple[ToolCall, ...]


class Finish(Struct, frozen=True):
    reason: str


class ScriptedUsage(Struct, frozen=True):
    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


# What happens on the way.


class Raw(Struct, frozen=True):
    """RawReply of the body to the letter, between the frames of a stream; none at all still sends the head."""

    data: bytes


class Pause(Struct, frozen=True):
    seconds: float


class Wait(Struct, frozen=True):
    gate: Gate


class End(Struct, frozen=True):
    how: Ending


TurnElement = Text | Reasoning | Redacted | Refusal | ToolCalls | Finish | ScriptedUsage | Raw | Pause | Wait | End
#: What a server does for an answer, in order: sends these bytes, waits, or ends the connection.
Step = bytes | Pause | Wait | End


class ScriptedTurn(Struct, frozen=True, kw_only=True):
    """One answer of the model. The request's `stream` decides how it is sent, unless `stream` here does."""

    elements: tuple[TurnElement, ...]
    stream: bool | None = None
    omit: tuple[Part, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)


class PlainReply(Struct, frozen=True, kw_only=True):
    """An answer of one piece."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class RawReply(Struct, frozen=True, kw_only=True):
    """An answer to the letter, each piece a write of its own; may be endless. After it the connection stays open."""

    steps: Iterable[Step]


Reply = ScriptedTurn | PlainReply | RawReply
#: Replies in their order, or what makes one from each request. Without a script a server answers as it sees fit.
Script = Sequence[Reply] | Callable[[ReceivedRequest], Reply]


def turn(
    *elements: TurnElement, stream: bool | None = None, omit: Sequence[Part] = (), headers: dict[str, str] | None = None
) -> ScriptedTurn:
    """An answer. What it does not say of its end (finish reason, usage, `[DONE]`) is added, except for what `omit` names."""
    return ScriptedTurn(elements=elements, stream=stream, omit=tuple(omit), headers=headers or {})


def text(*pieces: str) -> Text:
    return Text(pieces)


def reasoning(*pieces: str, signature: str | None = None) -> Reasoning:
    return Reasoning(pieces, signature)


def redacted(data: str) -> Redacted:
    return Redacted(data)


def refusal(*pieces: str) -> Refusal:
    return Refusal(pieces)


def tool_call(id: str, name: str, *arguments: str) -> ToolCalls:
    """One call of a function, its arguments in these pieces."""
    return ToolCalls((ToolCall(id, name, arguments),))


def custom_call(id: str, name: str, *input: str) -> ToolCalls:
    """One call of a custom tool, its input in these pieces."""
    return ToolCalls((ToolCall(id, name, input, "custom"),))


def interleaved(*calls: ToolCalls) -> ToolCalls:
    """Several calls at once, piece by piece in turns."""
    return ToolCalls(tuple(call for group in calls for call in group.calls))


def finish(reason: str) -> Finish:
    """The finish reason in the words of chat: `stop`, `length`, `tool_calls`, `content_filter`."""
    return Finish(reason)


def usage(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> ScriptedUsage:
    return ScriptedUsage(prompt, completion, cached, reasoning)


def raw(data: bytes) -> Raw:
    """RawReply in the middle of a stream: a comment, a broken frame, an error inside a 200."""
    return Raw(data)


def head() -> Raw:
    """Status and headers go out now; else they go out with the first thing said."""
    return Raw(b"")


def pause(seconds: float) -> Pause:
    return Pause(seconds)


def wait(gate: Gate) -> Wait:
    return Wait(gate)


def end(how: Ending) -> End:
    """The connection ends here: `fin` between two chunks, `mid-chunk` inside one, `rst`, or it stays silent (`hang`)."""
    return End(how)


def whole(json: Any, status: int = 200, headers: dict[str, str] | None = None) -> PlainReply:
    """This JSON, whatever was asked."""
    return PlainReply(
        status=status, body=msgspec.json.encode(json), headers={"content-type": "application/json", **(headers or {})}
    )


def error(
    status: int,
    message: str = "scripted",
    *,
    type: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> PlainReply:
    """An error in the form that chat and responses servers share."""
    return whole({"error": {"message": message, "type": type, "param": param, "code": code}}, status, headers)


def exactly(*steps: Step) -> RawReply:
    """The whole answer to the letter: `exactly(SSE_HEAD, b"data: {", end("rst"))`."""
    return RawReply(steps=steps)


def usage_of(turn: ScriptedTurn, prompt_chars: int) -> ScriptedUsage:
    """What the turn says of it, else a count: four characters of the prompt make a token, and so does each piece said."""
    for element in turn.elements:
        if isinstance(element, ScriptedUsage):
            return element
    thoughts = sum(len(element.pieces) for element in turn.elements if isinstance(element, Reasoning))
    words = sum(len(element.pieces) for element in turn.elements if isinstance(element, Text | Refusal))
    arguments = sum(
        len(call.pieces) for element in turn.elements if isinstance(element, ToolCalls) for call in element.calls
    )
    return ScriptedUsage(prompt_chars // 4 + 1, thoughts + words + arguments, reasoning=thoughts)


def interleave_pieces(calls: ToolCalls) -> list[tuple[int, ToolCall, str | None]]:
    """The pieces of interleaved calls in the order of the wire: which call, and what piece; None where a call begins."""
    order: list[tuple[int, ToolCall, str | None]] = [(at, call, None) for at, call in enumerate(calls.calls)]
    for number in range(max((len(call.pieces) for call in calls.calls), default=0)):
        order += [(at, call, call.pieces[number]) for at, call in enumerate(calls.calls) if number < len(call.pieces)]
    return order


#: The head of a stream whose body lasts until the connection closes, for `exactly`.
SSE_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
