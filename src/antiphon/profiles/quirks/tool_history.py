"""Quirks for tool calls and results in a history: as text (D-2), or as blocks in user messages (E-2)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.dialects.common.tool_errors import is_failed, mark_failure_in_text, tool_error_text, without_error_mark
from antiphon.dialects.common.tool_names import NAMESPACE_SEPARATOR
from antiphon.profiles.quirks.rewriting import (
    NoOptions,
    call_as_text,
    report_dropped_fields,
    result_as_text,
    with_content,
    with_items,
)
from antiphon.protocol.codec import encode
from antiphon.protocol.content import (
    ContentParam,
    InputText,
    OutputTextParam,
    ToolOutputContentParam,
    ToolResult,
    ToolUse,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

Call = FunctionCallParam | CustomToolCallParam
Output = FunctionCallOutputParam | CustomToolCallOutputParam


def tool_history_as_text(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """D-2: for servers that accept no calls as input. Calls and results become text."""
    if not isinstance(request.input, list):
        return request
    items: list[ItemParam] = []
    for index, item in enumerate(request.input):
        path = f"input[{index}]"
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                report_dropped_fields(item, path, losses)
                _append_assistant_note(items, _call_as_text(item))
            case FunctionCallOutputParam() | CustomToolCallOutputParam():
                output = mark_failure_in_text(item)
                report_dropped_fields(output, path, losses)
                items.append(MessageParam(role="user", content=_result_as_content(output, path, losses)))
            case MessageParam(content=list() as parts, role=role):
                texts = [
                    _block_as_text(part, role, f"{path}.content[{part_index}]", losses)
                    for part_index, part in enumerate(parts)
                ]
                items.append(with_content(item, texts))
            case _:
                items.append(item)
    return with_items(request, items)


def tool_results_in_user_messages(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """E-2: consecutive results become blocks of one user message, in their order."""
    if not isinstance(request.input, list):
        return request
    items: list[ItemParam] = []
    for is_output, group in groupby(
        enumerate(request.input), lambda index_and_item: isinstance(index_and_item[1], Output)
    ):
        numbered_items = list(group)
        if is_output:
            blocks = [
                _result_as_block(item, f"input[{index}]", losses)
                for index, item in numbered_items
                if isinstance(item, Output)
            ]
            items.append(MessageParam(role="user", content=[*blocks]))
        else:
            items += [item for _, item in numbered_items]
    return with_items(request, items)


def _call_as_text(call: Call) -> str:
    name = f"{call.namespace}{NAMESPACE_SEPARATOR}{call.name}" if call.namespace else call.name
    # The input of a custom tool is any text. Encoded as a JSON string it cannot look like the end of the note.
    arguments = call.arguments if isinstance(call, FunctionCallParam) else msgspec.json.encode(call.input).decode()
    return call_as_text(name, arguments, call.call_id)


def _append_assistant_note(items: list[ItemParam], note: str) -> None:
    """Append a note to the last assistant message, after a blank line, or add an assistant message."""
    match items:
        case [*_, MessageParam(role="assistant", content=str() as text) as last]:
            items[-1] = with_content(last, f"{text}\n\n{note}" if text else note)
        case [*_, MessageParam(role="assistant", content=[*parts, (OutputTextParam() | InputText()) as part]) as last]:
            items[-1] = with_content(last, [*parts, replace(part, text=f"{part.text}\n\n{note}")])
        case [*_, MessageParam(role="assistant", content=[*parts]) as last]:
            items[-1] = with_content(last, [*parts, OutputTextParam(text=note)])
        case _:
            items.append(MessageParam(role="assistant", content=note))


def _result_as_content(output: Output, path: str, losses: Losses) -> str | list[ContentParam]:
    value = _value_of(output, path, losses)
    if isinstance(value, str):
        return result_as_text(output.call_id, value)
    # Parts other than text stay in their place: a user message can hold them.
    match value:
        case [InputText(text=text) as first, *rest]:
            return [replace(first, text=result_as_text(output.call_id, text)), *rest]
        case _:
            return [InputText(text=result_as_text(output.call_id, "")), *value]


def _result_as_block(output: Output, path: str, losses: Losses) -> ToolResult:
    report_dropped_fields(without_error_mark(output), path, losses)
    is_error = True if is_failed(output) else UNSET
    return ToolResult(tool_use_id=output.call_id, content=_value_of(output, path, losses), is_error=is_error)


def _value_of(output: Output, path: str, losses: Losses) -> str | list[ToolOutputContentParam]:
    """Return a string if all parts are text, else the parts (TOOL-6, A-5)."""
    if isinstance(output.output, str):
        return output.output
    texts = [part for part in output.output if isinstance(part, InputText)]
    if len(texts) < len(output.output):
        return output.output
    for index, part in enumerate(texts):
        report_dropped_fields(part, f"{path}.output[{index}]", losses)
    return "\n".join(part.text for part in texts)


def _block_as_text(part: ContentParam, role: MessageRole, path: str, losses: Losses) -> ContentParam:
    """Return a call or a result inside a message as text (E-1)."""
    match part:
        case ToolUse():
            text = call_as_text(part.name, msgspec.json.encode(part.input).decode(), part.id)
        case ToolResult():
            value = _text_of_blocks(part.content)
            text = result_as_text(part.tool_use_id, tool_error_text(value) if part.is_error else value)
        case _:
            return part
    report_dropped_fields(part, path, losses)
    return OutputTextParam(text=text) if role == "assistant" else InputText(text=text)


def _text_of_blocks(content: Any) -> str:
    match content:
        case str():
            return content
        case [*blocks] if all(isinstance(block, dict) and block.keys() == {"type", "text"} for block in blocks):
            return "\n".join(str(block["text"]) for block in blocks)
        case _:
            return encode(content).decode() if content else ""
