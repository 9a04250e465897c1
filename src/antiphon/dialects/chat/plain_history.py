"""The common conversation, in one pass: plain texts, and calls that are answered right after they were made, in their order.

Nothing in such a conversation can be lost, so nothing is looked for. Whatever else a conversation holds is left to
`messages_from_hub`, which would write the same messages for this one too: a law holds the two equal.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec
from msgspec import Struct

from antiphon.dialects.chat.wire import ChatWire, FunctionOut, MessageOut, ToolCallOut
from antiphon.dialects.common.names import ToolNames
from antiphon.dialects.common.plain_history import plain_text
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam
from antiphon.protocol.request import Request


class Said(Struct, frozen=True, gc=False):
    """A message of nothing but text. It is written like any other, and made in half the time."""

    role: str
    content: str


class Told(Struct, frozen=True, gc=False):
    """The beginning of a conversation that is as plain as that, as far as it is written."""

    names: ToolNames
    wire: ChatWire
    written: bytes = b""  # messages, with commas in between
    said: str | None = None  # by the assistant last, whose turn may go on with calls

    def go_on(self, items: list[ItemParam]) -> Told | None:
        """The same conversation with more of it; None if it is not plain, or a call waits for its output at the end."""
        found = _plain(self.said, items, self.names, self.wire)
        if found is None:
            return None
        done, said = found
        return Told(self.names, self.wire, _joined(self.written, done) if done else self.written, said)

    def whole(self) -> bytes:
        """All messages, if nothing comes behind."""
        return self.written if self.said is None else _joined(self.written, [Said("assistant", self.said)])


def history_from_hub(request: Request, wire: ChatWire = ChatWire()) -> Told:  # noqa: B008
    """A conversation before its first item, among the tools of a request."""
    return Told(ToolNames.of(request), wire)


def plain_messages(items: list[ItemParam], names: ToolNames, wire: ChatWire) -> list[Said | MessageOut] | None:
    """The messages of a conversation that is as plain as that; None if it is not."""
    found = _plain(None, items, names, wire)
    if found is None:
        return None
    done, said = found
    return done if said is None else [*done, Said("assistant", said)]


def _joined(written: bytes, messages: list[Said | MessageOut]) -> bytes:
    more = _encode(messages)[1:-1]
    return b"%b,%b" % (written, more) if written else more


def _plain(
    said: str | None, items: list[ItemParam], names: ToolNames, wire: ChatWire
) -> tuple[list[Said | MessageOut], str | None] | None:
    """The messages that `items` come to, where the assistant said `said` before them, and what it said at their end."""
    if wire.text_content != "string" or wire.system != "anywhere" or wire.empty_content != "null":
        return None
    wants_reasoning = wire.missing_reasoning == "blank"  # with every call
    done: list[Said | MessageOut] = []
    calls: list[FunctionCallParam] = []
    results: list[MessageOut] = []
    for item in items:
        kind = type(item)
        if kind is MessageParam:
            if calls:
                if len(results) != len(calls):
                    return None  # a call without its output
                done.append(MessageOut(role="assistant", content=said, tool_calls=_calls(calls, names)))
                done += results
                said, calls, results = None, [], []
            elif said is not None:
                done.append(Said("assistant", said))
                said = None
            message = cast(MessageParam, item)
            text = plain_text(message.content)
            if message.extra or message.phase:
                return None
            if message.role == "user" and text is not None:
                done.append(Said("user", text))
            elif not text:
                return None
            elif message.role == "assistant":
                said = text
            else:
                done.append(Said("system" if message.role == "system" else wire.developer, text))
        elif kind is FunctionCallOutputParam:
            output = cast(FunctionCallOutputParam, item)
            at = len(results)
            if at == len(calls) or calls[at].call_id != output.call_id or type(output.output) is not str or output.extra:
                return None
            results.append(MessageOut(role="tool", tool_call_id=output.call_id, content=output.output))
        elif kind is FunctionCallParam:
            call = cast(FunctionCallParam, item)
            if results:
                if len(results) != len(calls):
                    return None  # something between a call and its output
                done.append(MessageOut(role="assistant", content=said, tool_calls=_calls(calls, names)))
                done += results
                said, calls, results = None, [], []
            if wants_reasoning or call.extra or call.namespace or any(other.call_id == call.call_id for other in calls):
                return None
            calls.append(call)
        else:
            return None
    if len(results) != len(calls):
        return None
    if calls:
        done.append(MessageOut(role="assistant", content=said, tool_calls=_calls(calls, names)))
        return done + results, None
    return done, said


def _calls(calls: list[FunctionCallParam], names: ToolNames) -> list[ToolCallOut]:
    return [
        ToolCallOut(
            id=call.call_id,
            # Models that call a function without parameters may write nothing at all; servers want JSON.
            function=FunctionOut(name=names.sent(("function", call.name, None)), arguments=call.arguments or "{}"),
        )
        for call in calls
    ]


_encode: Final = msgspec.json.Encoder().encode
