"""Fast path for the messages of a plain conversation.

`general_messages_from_hub` writes the same messages; a test compares the two.
"""

from __future__ import annotations

from antiphon.dialects.chat.wire import ChatWire, FunctionOut, MessageOut, ToolCallOut
from antiphon.dialects.common.plain_history import PlainCalls, plain_history
from antiphon.dialects.common.tool_names import ToolNames
from antiphon.protocol.items import FunctionCallParam, ItemParam


def plain_messages(items: list[ItemParam], names: ToolNames, wire: ChatWire) -> list[MessageOut] | None:
    """Return the messages, or None if the conversation is not plain or the server needs another form."""
    if wire.text_content != "string" or wire.empty_content != "null":
        return None
    turns = plain_history(items)
    if turns is None:
        return None
    messages: list[MessageOut] = []
    for turn in turns:
        if type(turn) is not PlainCalls:
            messages.append(MessageOut(role="user" if turn.is_user else "assistant", content=turn.text))
            continue
        if wire.missing_reasoning == "blank":  # every call needs reasoning, which only `general_messages_from_hub` adds
            return None
        calls = [_tool_call(call, names) for call in turn.calls]
        messages.append(MessageOut(role="assistant", content=turn.text, tool_calls=calls))
        for call, output in zip(turn.calls, turn.outputs, strict=True):
            messages.append(MessageOut(role="tool", tool_call_id=call.call_id, content=output))
    return messages


def _tool_call(call: FunctionCallParam, names: ToolNames) -> ToolCallOut:
    # Models that call a function without parameters may write no arguments at all; servers want JSON.
    arguments = call.arguments or "{}"
    return ToolCallOut(
        id=call.call_id, function=FunctionOut(name=names.wire_name(("function", call.name, None)), arguments=arguments)
    )
