"""Marks outputs of failed tools. In the hub such an output has the member `is_error`, as some clients send it.

A dialect with its own field for failures writes that field. For other dialects the first text of the output is marked,
with the same text in each turn, so that a server's prompt cache stays valid. This is no loss.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.protocol.content import InputText, ToolOutputContentParam
from antiphon.protocol.items import CustomToolCallOutputParam, FunctionCallOutputParam

OutputT = TypeVar("OutputT", bound=FunctionCallOutputParam | CustomToolCallOutputParam)


def is_failed(output: OutputT) -> bool:
    """Whether the tool failed."""
    return bytes((output.extra or {}).get(IS_ERROR, b"")) == b"true"


def without_error_mark(output: OutputT) -> OutputT:
    """The output without the mark. A value that is not a boolean or null is not a mark, and is kept."""
    if not output.extra or bytes(output.extra.get(IS_ERROR, b"")) not in MARK_VALUES:
        return output
    return replace(output, extra={name: raw for name, raw in output.extra.items() if name != IS_ERROR} or UNSET)


def mark_failure_in_text(output: OutputT) -> OutputT:
    """The output for a dialect without the field: its first text is marked if the tool failed."""
    if not is_failed(output):
        return without_error_mark(output)
    content = output.output
    return replace(
        without_error_mark(output),
        output=tool_error_text(content) if isinstance(content, str) else _mark_first_text(content),
    )


def tool_error_text(text: str) -> str:
    """The text of a failed tool with the error mark."""
    return f"{TOOL_ERROR_PREFIX}{text}" if text else TOOL_ERROR_PREFIX.rstrip()


def _mark_first_text(parts: list[ToolOutputContentParam]) -> list[ToolOutputContentParam]:
    for index, part in enumerate(parts):
        if isinstance(part, InputText):
            return [*parts[:index], replace(part, text=tool_error_text(part.text)), *parts[index + 1 :]]
    return [InputText(text=tool_error_text("")), *parts]


#: The beginning of the output text of a failed tool.
TOOL_ERROR_PREFIX: Final = "[tool error] "
IS_ERROR: Final = "is_error"
#: The member of an output whose tool failed.
ERROR_MARK: Final = {IS_ERROR: Raw(b"true")}
MARK_VALUES: Final = (b"true", b"false", b"null")
