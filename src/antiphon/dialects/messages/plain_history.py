"""A fast path for plain conversations. It writes the same messages as `history_from_hub`; a test compares the two."""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, Raw

from antiphon.dialects.common.plain_history import PlainCalls, plain_history
from antiphon.dialects.common.tool_names import ToolNames
from antiphon.dialects.messages.wire import Block, MessageOut, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.protocol.items import ItemParam
from antiphon.protocol.nesting import JSON_WHITESPACE, decode_json


def plain_messages(items: list[ItemParam], names: ToolNames) -> list[MessageOut] | None:
    """The messages of a plain conversation; None if it is not plain or cannot be sent unchanged."""
    turns = plain_history(items)
    if turns is None:
        return None
    done: list[MessageOut] = []
    for turn in turns:
        if type(turn) is PlainCalls:
            assistant_blocks: list[Block] = [TextBlock(text=turn.text)] if turn.text else []
            results: list[Block] = []
            for call, output in zip(turn.calls, turn.outputs, strict=True):
                arguments = arguments_as_json_object(call.arguments)
                if arguments is None or VALID_CALL_ID.fullmatch(call.call_id) is None:
                    return None
                assistant_blocks.append(
                    ToolUseBlock(id=call.call_id, name=names.wire_name(("function", call.name, None)), input=arguments)
                )
                results.append(ToolResultBlock(tool_use_id=call.call_id, content=output or UNSET))
            done.append(MessageOut(role="assistant", content=assistant_blocks))
            done.append(MessageOut(role="user", content=results))
        elif not turn.is_user:
            done.append(MessageOut(role="assistant", content=[TextBlock(text=turn.text)]))
        elif done and done[-1].role == "user":  # results, which the user's text follows
            done[-1].content.append(TextBlock(text=turn.text))
        else:
            done.append(MessageOut(role="user", content=[TextBlock(text=turn.text)]))
    return done


def arguments_as_json_object(arguments: str) -> Raw | None:
    """Arguments as a JSON object; None if they are not one. Empty arguments count as `{}`."""
    if not arguments.strip(JSON_WHITESPACE):
        return Raw(b"{}")
    try:
        return Raw(arguments.encode()) if isinstance(decode_json(arguments), dict) else None
    except ValueError:
        return None


VALID_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
