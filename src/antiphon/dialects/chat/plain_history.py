"""The common conversation, in one pass: plain texts, and calls that are answered right after they were made, in their order.

Nothing in such a conversation can be lost, so nothing is looked for. Whatever else a conversation holds is left to
`messages_from_hub`, which would write the same messages for this one too: a law holds the two equal.
"""

from __future__ import annotations

from msgspec import UNSET

from antiphon.dialects.chat.content_from_hub import plain_text
from antiphon.dialects.chat.wire import ChatWire, FunctionOut, MessageOut, ToolCallOut
from antiphon.dialects.common.names import ToolNames
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam


def plain_messages(items: list[ItemParam], names: ToolNames, wire: ChatWire) -> list[MessageOut] | None:
    """The messages of a conversation that is as plain as that; None if it is not."""
    if wire.text_content != "string" or wire.system != "anywhere" or wire.empty_content != "null":
        return None
    done: list[MessageOut] = []
    said: str | None = None  # by the assistant, whose turn may go on with calls
    calls: list[FunctionCallParam] = []
    results: list[MessageOut] = []
    for item in items:
        if type(item) is FunctionCallOutputParam:
            at = len(results)
            if at == len(calls) or calls[at].call_id != item.call_id or type(item.output) is not str or item.extra:
                return None
            results.append(MessageOut(role="tool", tool_call_id=item.call_id, content=item.output))
            continue
        if len(results) != len(calls) and (results or type(item) is not FunctionCallParam):
            return None  # a call without its output, or something between the two
        if calls and results:
            done.append(MessageOut(role="assistant", content=said, tool_calls=_calls(calls, names)))
            done += results
            said, calls, results = None, [], []
        if type(item) is FunctionCallParam:
            if item.extra or item.namespace or any(call.call_id == item.call_id for call in calls):
                return None
            calls.append(item)
            continue
        if type(item) is not MessageParam or item.extra or item.phase:
            return None
        if said is not None:
            done.append(MessageOut(role="assistant", content=said))
            said = None
        text = plain_text(item.content)
        if item.role == "user" and text is not None:
            done.append(MessageOut(role="user", content=text))
        elif not text:
            return None
        elif item.role == "assistant":
            said = text
        else:
            done.append(MessageOut(role="system" if item.role == "system" else wire.developer, content=text))
    if len(results) != len(calls):
        return None
    if calls or said is not None:
        done.append(MessageOut(role="assistant", content=said, tool_calls=_calls(calls, names) if calls else UNSET))
    return done + results


def _calls(calls: list[FunctionCallParam], names: ToolNames) -> list[ToolCallOut]:
    return [
        ToolCallOut(
            id=call.call_id,
            # Models that call a function without parameters may write nothing at all; servers want JSON.
            function=FunctionOut(name=names.sent(("function", call.name, None)), arguments=call.arguments or "{}"),
        )
        for call in calls
    ]
