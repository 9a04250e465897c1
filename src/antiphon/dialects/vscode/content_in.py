"""Translates single parts of an editor's messages: their kind, their bytes and their hub content (A-3), and tool
results (A-5).

A data part whose type is no media type is a mark of the editor, such as a cache marker. A tool result becomes the
output of a call: texts joined by line breaks, and images if they are wanted. Unknown values become JSON, binary data
becomes a note. Values of prompt-tsx are trees and become the text of their leaves, as in the editor.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, Literal, get_args

from msgspec import UNSET, Raw

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, mark_from_cache_control
from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.dialects.vscode.wire import ContentChoicesIn, EditorPartKind, PartIn
from antiphon.errors import InvalidValue, MissingField
from antiphon.protocol import codec
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText, ToolOutputContentParam
from antiphon.protocol.items import FunctionCallOutputParam
from antiphon.protocol.losses import Losses

DataForm = Literal["image", "text", "json", "mark", "other"]


def part_kind(part: PartIn) -> EditorPartKind | None:
    """Return the kind of a part, by its type or its members. None if it is unknown."""
    if part.type is not UNSET:
        return KINDS.get(part.type)
    if part.call_id is not UNSET:
        return "tool_call" if part.content is UNSET else "tool_result"
    if part.mime_type is not UNSET:
        return "data"
    if isinstance(part.value, str):
        return "thinking" if part.id or part.metadata else "text"
    return "thinking" if isinstance(part.value, list) else None


def data_form(mime_type: str) -> DataForm:
    """Return the form of data of a media type."""
    kind, slash, rest = mime_type.partition(";")[0].strip().lower().partition("/")
    if not slash:
        return "mark"
    if kind in ("image", "text"):
        return "image" if kind == "image" else "text"
    return "json" if kind == "application" and (rest == "json" or rest.endswith("+json")) else "other"


def require_member(value: Any, path: str) -> Any:
    """Return a member that parts of this kind must have."""
    if value is UNSET:
        raise MissingField(f"{path} is missing", param=path)
    return value


def decode_bytes(data: Any, path: str) -> bytes:
    """Decode bytes from base64, or from a form in which JavaScript serializes byte arrays."""
    try:
        match data:
            case str():
                return base64.b64decode(data, validate=True)
            case list() | {"type": "Buffer", "data": list()}:
                return bytes(data if isinstance(data, list) else data["data"])
            case dict():
                return bytes(data[str(index)] for index in range(len(data)))
    except (binascii.Error, ValueError, TypeError, KeyError):
        pass
    raise InvalidValue(f"{path}: expected bytes, as base64 or as an array of numbers from 0 to 255", param=path)


def decode_text(data: bytes, path: str, losses: Losses) -> str:
    """Decode bytes as UTF-8 text."""
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and text.encode() != data:
        losses.add(path, "invalid UTF-8", "it is replaced by U+FFFD")
    return text


def data_url(mime_type: str, data: bytes) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def binary_placeholder(mime_type: str) -> str:
    """Return the text that replaces binary data."""
    return f"[Binary data: {mime_type}]"


def user_data_to_hub(
    part: PartIn, path: str, choices: ContentChoicesIn, losses: Losses
) -> InputText | InputImageParam | InputFileParam:
    """A-3: translate data in a user or system message."""
    mime_type = str(part.mime_type)
    data = decode_bytes(require_member(part.data, f"{path}.data"), f"{path}.data")
    form = data_form(mime_type)
    if form == "image":
        return InputImageParam(image_url=data_url(mime_type, data))
    if form == "text" or (form == "json" and choices.json == "text"):
        return InputText(text=decode_text(data, f"{path}.data", losses))
    return InputFileParam(file_data=data_url(mime_type, data))


def assistant_data_to_text(part: PartIn, path: str, losses: Losses) -> str:
    """A-3: translate data in an assistant message, which can hold only text."""
    mime_type = str(part.mime_type)
    data = decode_bytes(require_member(part.data, f"{path}.data"), f"{path}.data")
    if data_form(mime_type) in ("text", "json"):
        return decode_text(data, f"{path}.data", losses)
    losses.add(path, f"data of the type {mime_type!r}", "an assistant message cannot have it; a note is sent instead")
    return binary_placeholder(mime_type)


def cache_marker(part: PartIn, path: str) -> Raw | None:
    """Return the hub's cache mark, or None if the part is another mark."""
    if part.mime_type != CACHE_CONTROL:
        return None
    kind = decode_bytes(require_member(part.data, f"{path}.data"), f"{path}.data")
    return mark_from_cache_control({"type": "ephemeral"}) if kind == b"ephemeral" else None


def result_to_hub(part: PartIn, path: str, choices: ContentChoicesIn, losses: Losses) -> FunctionCallOutputParam:
    """Translate a result part into an item."""
    call_id = require_member(part.call_id, f"{path}.callId")
    content = require_member(part.content, f"{path}.content")
    members = [
        _member_to_hub(member, f"{path}.content[{index}]", choices, losses) for index, member in enumerate(content)
    ]
    return FunctionCallOutputParam(
        call_id=call_id, output=_join_members(members), extra=ERROR_MARK if part.is_error else UNSET
    )


def prompt_tree_text(value: Any) -> str:
    """Return a value of prompt-tsx as text. A value that is no such tree becomes JSON."""
    match value:
        case str():
            return value
        case {"node": dict() as root}:
            return "".join(_leaf_texts(root))
        case _:
            return codec.encode(value).decode()


def _member_to_hub(member: Any, path: str, choices: ContentChoicesIn, losses: Losses) -> str | InputImageParam:
    match member:
        case str():
            return member
        case {"value": value} if member.keys() <= VALUE_MEMBERS:
            return prompt_tree_text(value)
        case {"mimeType": str() as mime_type, "data": data} if member.keys() <= DATA_MEMBERS:
            return _result_data(mime_type, decode_bytes(data, f"{path}.data"), path, choices, losses)
        case _:
            return codec.encode(member).decode()


def _result_data(
    mime_type: str, data: bytes, path: str, choices: ContentChoicesIn, losses: Losses
) -> str | InputImageParam:
    form = data_form(mime_type)
    if form in ("text", "json"):
        return decode_text(data, f"{path}.data", losses)
    if form == "image" and choices.images_in_results == "keep":
        return InputImageParam(image_url=data_url(mime_type, data))
    losses.add(path, f"data of the type {mime_type!r}", "a tool output cannot have it; a note is sent instead")
    return binary_placeholder(mime_type)


def _join_members(members: list[str | InputImageParam]) -> str | list[ToolOutputContentParam]:
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


def _leaf_texts(root: dict[str, Any]) -> list[str]:
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


KINDS: Final[dict[str, EditorPartKind]] = {kind: kind for kind in get_args(EditorPartKind)}
VALUE_MEMBERS: Final = frozenset({"type", "value", "$mid", "audience"})
DATA_MEMBERS: Final = frozenset({"type", "mimeType", "data", "$mid", "audience"})
IMAGE_NOTE: Final = binary_placeholder("image")
