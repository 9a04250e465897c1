"""Translates tool results into outputs of calls (A-5): texts joined by line breaks, and images if they are wanted.

Unknown values become JSON, binary data becomes a note. Values of prompt-tsx are trees and become the text of their
leaves, as in the editor.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.dialects.vscode.parts_to_hub import (
    binary_placeholder,
    data_form,
    data_url,
    decode_bytes,
    decode_text,
    require_member,
)
from antiphon.dialects.vscode.request_in import ChoicesIn, PartIn
from antiphon.protocol import codec
from antiphon.protocol.content import InputImageParam, InputText, ToolOutputContentParam
from antiphon.protocol.items import FunctionCallOutputParam
from antiphon.protocol.losses import Losses


def result_to_hub(part: PartIn, path: str, choices: ChoicesIn, losses: Losses) -> FunctionCallOutputParam:
    """Translate a result part into an item."""
    call_id = require_member(part.call_id, f"{path}.callId")
    content = require_member(part.content, f"{path}.content")
    members = [_member_to_hub(member, f"{path}.content[{at}]", choices, losses) for at, member in enumerate(content)]
    return FunctionCallOutputParam(
        call_id=call_id, output=_joined(members), extra=ERROR_MARK if part.is_error else UNSET
    )


def flattened(value: Any) -> str:
    """Return a value of prompt-tsx as text. A value that is no such tree becomes JSON."""
    match value:
        case str():
            return value
        case {"node": dict() as root}:
            return "".join(_leaves(root))
        case _:
            return codec.encode(value).decode()


def _member_to_hub(member: Any, path: str, choices: ChoicesIn, losses: Losses) -> str | InputImageParam:
    match member:
        case str():
            return member
        case {"value": value} if member.keys() <= VALUE_MEMBERS:
            return flattened(value)
        case {"mimeType": str() as mime_type, "data": data} if member.keys() <= DATA_MEMBERS:
            return _data(mime_type, decode_bytes(data, f"{path}.data"), path, choices, losses)
        case _:
            return codec.encode(member).decode()


def _data(mime_type: str, data: bytes, path: str, choices: ChoicesIn, losses: Losses) -> str | InputImageParam:
    form = data_form(mime_type)
    if form in ("text", "json"):
        return decode_text(data, f"{path}.data", losses)
    if form == "image" and choices.images_in_results == "keep":
        return InputImageParam(image_url=data_url(mime_type, data))
    losses.add(path, f"data of the type {mime_type!r}", "a tool output cannot have it; a note is sent instead")
    return binary_placeholder(mime_type)


def _joined(members: list[str | InputImageParam]) -> str | list[ToolOutputContentParam]:
    texts = [member for member in members if isinstance(member, str)]
    if len(texts) == len(members):
        return "\n".join(texts)
    parts: list[ToolOutputContentParam] = []
    for member in members:
        if not isinstance(member, str):
            parts.append(member)
        elif parts and isinstance(parts[-1], InputText):
            parts[-1] = InputText(text=f"{parts[-1].text}\n{member}")
        else:
            parts.append(InputText(text=member))
    return parts


def _leaves(root: dict[str, Any]) -> list[str]:
    """Return the texts of a tree in order. No recursion, because trees may be very deep."""
    texts: list[str] = []
    pending: list[Any] = [root]
    while pending:
        match pending.pop():
            case {"type": 2, "text": str() as text, **rest}:
                texts.append(f"\n{text}" if rest.get("lineBreakBefore") else text)
            case {"type": 1, "ctor": 3}:
                texts.append(IMAGE_NOTE)
            case {"type": 1, "children": list() as children}:
                pending += reversed(children)
    return texts


VALUE_MEMBERS: Final = frozenset({"type", "value", "$mid", "audience"})
DATA_MEMBERS: Final = frozenset({"type", "mimeType", "data", "$mid", "audience"})
IMAGE_NOTE: Final = binary_placeholder("image")
