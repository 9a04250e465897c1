"""The requests of a scripted server (`ReceivedRequest`) and its scripted answers (`Reply`).

A `ScriptedTurn` has the model's output in pieces; each server renders it in its dialect, as a stream or whole.
`PlainReply` is any answer of one piece, such as an error. `RawReply` is the exact bytes, including the status line.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from antiphon.protocol.codec import check_nesting
from antiphon.protocol.nesting import MAX_NESTING

Ending = Literal["fin", "mid-chunk", "rst", "hang"]
Part = Literal["finish", "usage", "done"]

# A dialect may nest the client's JSON a level or two deeper, and servers do not have the gateway's own limit.
FAKE_MAX_NESTING: Final = 2 * MAX_NESTING


class ReceivedRequest(Struct, frozen=True, kw_only=True):
    """One received request. Header names are in lower case; the values of repeated headers are joined by commas."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            check_nesting(self.body, FAKE_MAX_NESTING)
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


class Gate:
    """A point in a script at which the server waits until the test opens it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._reached = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Release all servers, now and later."""
        with self._lock:
            self._is_open = True
            for loop, opened in self._waiters:
                loop.call_soon_threadsafe(opened.set)

    def wait_reached(self, timeout: float = 60.0) -> None:
        """Wait until a server has reached the gate."""
        if not self._reached.wait(timeout):
            raise TimeoutError(f"no server came to the gate within {timeout} s")

    async def wait_until_open(self) -> None:
        """Wait until the gate is open (called by the server)."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._reached.set()
            if self._is_open:
                return
            self._waiters.append(waiter)
        try:
            await waiter[1].wait()
        finally:
            with self._lock:
                self._waiters.remove(waiter)


# Output of a model.


class Text(Struct, frozen=True):
    pieces: tuple[str, ...]


class Reasoning(Struct, frozen=True):
    """Reasoning text. Dialects that sign it use this signature, or else one that the server makes."""

    pieces: tuple[str, ...]
    signature: str | None = None


class Redacted(Struct, frozen=True):
    """Encrypted reasoning without text. Dialects without it leave it out."""

    data: str


class Refusal(Struct, frozen=True):
    pieces: tuple[str, ...]


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    pieces: tuple[str, ...]
    kind: Literal["function", "custom"] = "function"


class ToolCalls(Struct, frozen=True):
    """Calls whose pieces are interleaved: the first piece of each, then the second of each."""

    calls: tuple[ToolCall, ...]


class Finish(Struct, frozen=True):
    reason: str


class ScriptedUsage(Struct, frozen=True):
    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    cache_write: int = 0


# Events of the connection.


class Raw(Struct, frozen=True):
    """Exact bytes between the frames of a stream; empty bytes send only the head."""

    data: bytes


class Pause(Struct, frozen=True):
    seconds: float


class Wait(Struct, frozen=True):
    gate: Gate


class End(Struct, frozen=True):
    how: Ending


TurnElement = Text | Reasoning | Redacted | Refusal | ToolCalls | Finish | ScriptedUsage | Raw | Pause | Wait | End
#: A step of an answer: send bytes, wait, or end the connection.
Step = bytes | Pause | Wait | End


class ScriptedTurn(Struct, frozen=True, kw_only=True):
    """One answer of the model. `stream` overrides the request's `stream`."""

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
    """Exact bytes of an answer, one write per step; may be endless. The connection stays open after it."""

    steps: Iterable[Step]


#: An answer to one request.
Reply = ScriptedTurn | PlainReply | RawReply
#: Replies in order, or a function from a request to a reply. Without a script, a server improvises.
Script = Sequence[Reply] | Callable[[ReceivedRequest], Reply]


def turn(
    *elements: TurnElement, stream: bool | None = None, omit: Sequence[Part] = (), headers: dict[str, str] | None = None
) -> ScriptedTurn:
    """Return an answer. Its finish reason, usage and `[DONE]` are added, except those in `omit`."""
    return ScriptedTurn(elements=elements, stream=stream, omit=tuple(omit), headers=headers or {})


def text(*pieces: str) -> Text:
    """Return text of the model; each piece is sent in its own chunk."""
    return Text(pieces)


def reasoning(*pieces: str, signature: str | None = None) -> Reasoning:
    """Return reasoning of the model. Dialects that sign it use this signature, or else one that the server makes."""
    return Reasoning(pieces, signature)


def redacted(data: str) -> Redacted:
    """Return encrypted reasoning without text."""
    return Redacted(data)


def refusal(*pieces: str) -> Refusal:
    """Return a refusal of the model to answer."""
    return Refusal(pieces)


def tool_call(id: str, name: str, *arguments: str) -> ToolCalls:
    """Return one call of a function, with its arguments in these pieces."""
    return ToolCalls((ToolCall(id, name, arguments),))


def custom_call(id: str, name: str, *input: str) -> ToolCalls:
    """Return one call of a custom tool, with its input in these pieces."""
    return ToolCalls((ToolCall(id, name, input, "custom"),))


def interleaved(*calls: ToolCalls) -> ToolCalls:
    """Return several parallel calls with interleaved pieces."""
    return ToolCalls(tuple(call for group in calls for call in group.calls))


def finish(reason: str) -> Finish:
    """Set the finish reason, as in chat: `stop`, `length`, `tool_calls`, `content_filter`."""
    return Finish(reason)


def usage(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0, cache_write: int = 0) -> ScriptedUsage:
    """Set the numbers of tokens that the answer reports. `cached` and `cache_write` are parts of `prompt`."""
    return ScriptedUsage(prompt, completion, cached, reasoning, cache_write)


def raw(data: bytes) -> Raw:
    """Send exact bytes in the middle of a stream: a comment, a broken frame, an error inside a 200."""
    return Raw(data)


def head() -> Raw:
    """Send status and headers now; else they are sent with the first frame."""
    return Raw(b"")


def pause(seconds: float) -> Pause:
    """Wait for so many seconds."""
    return Pause(seconds)


def wait(gate: Gate) -> Wait:
    """Wait until the test opens the gate."""
    return Wait(gate)


def end(how: Ending) -> End:
    """End the connection here: `fin` between two chunks, `mid-chunk` inside one, `rst`, or silence (`hang`)."""
    return End(how)


def whole(json: Any, status: int = 200, headers: dict[str, str] | None = None) -> PlainReply:
    """Return this JSON as an answer of one piece."""
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
    """Return an error in the form that chat and responses servers share."""
    return whole({"error": {"message": message, "type": type, "param": param, "code": code}}, status, headers)


def exactly(*steps: Step) -> RawReply:
    """Return an answer of exact bytes: `exactly(SSE_HEAD, b"data: {", end("rst"))`."""
    return RawReply(steps=steps)


def usage_of(turn: ScriptedTurn, prompt_chars: int) -> ScriptedUsage:
    """Return the turn's usage, else a count: four characters of the prompt, or one piece of output, are one token."""
    for element in turn.elements:
        if isinstance(element, ScriptedUsage):
            return element
    reasoning_tokens = sum(len(element.pieces) for element in turn.elements if isinstance(element, Reasoning))
    text_tokens = sum(len(element.pieces) for element in turn.elements if isinstance(element, Text | Refusal))
    argument_tokens = sum(
        len(call.pieces) for element in turn.elements if isinstance(element, ToolCalls) for call in element.calls
    )
    return ScriptedUsage(
        prompt_chars // 4 + 1, reasoning_tokens + text_tokens + argument_tokens, reasoning=reasoning_tokens
    )


def interleave_pieces(calls: ToolCalls) -> list[tuple[int, ToolCall, str | None]]:
    """Return the pieces of interleaved calls in wire order: the index, the call, and the piece; None starts a call."""
    numbered_pieces: list[tuple[int, ToolCall, str | None]] = [
        (index, call, None) for index, call in enumerate(calls.calls)
    ]
    for number in range(max((len(call.pieces) for call in calls.calls), default=0)):
        numbered_pieces += [
            (index, call, call.pieces[number]) for index, call in enumerate(calls.calls) if number < len(call.pieces)
        ]
    return numbered_pieces


#: The head of a stream whose body ends with the connection, for `exactly`.
SSE_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
