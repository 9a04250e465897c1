"""Single parts of an editor's messages as the hub has them: what kind each is, its bytes, and what a message may hold of it (A-3).

Data without a media type is no data but a mark of the editor's own, such as where a prompt may be cached.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, Literal, get_args

from msgspec import UNSET, Raw

from antiphon.dialects.vscode.request_in import ChoicesIn, PartIn, PartKind
from antiphon.errors import InvalidValue, MissingField
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText
from antiphon.protocol.losses import Losses

Form = Literal["image", "text", "json", "mark", "other"]


def kind_of(part: PartIn) -> PartKind | None:
    """What a part is: what it says itself, or what its members say; None if nobody knows."""
    if part.type is not UNSET:
        return KINDS.get(part.type)
    if part.call_id is not UNSET:
        return "tool_call" if part.content is UNSET else "tool_result"
    if part.mime_type is not UNSET:
        return "data"
    if isinstance(part.value, str):
        return "thinking" if part.id or part.metadata else "text"
    return "thinking" if isinstance(part.value, list) else None


def form_of(mime_type: str) -> Form:
    """What is made of data of a media type."""
    kind, slash, rest = mime_type.partition(";")[0].strip().lower().partition("/")
    if not slash:
        return "mark"
    if kind in ("image", "text"):
        return "image" if kind == "image" else "text"
    return "json" if kind == "application" and (rest == "json" or rest.endswith("+json")) else "other"


def wanted(value: Any, path: str) -> Any:
    """A member that parts of this kind must have."""
    if value is UNSET:
        raise MissingField(f"{path} is missing", param=path)
    return value


def bytes_in(data: Any, path: str) -> bytes:
    """Bytes as base64, or in one of the forms that JavaScript's own serialisation gives to an array of them."""
    try:
        match data:
            case str():
                return base64.b64decode(data, validate=True)
            case list() | {"type": "Buffer", "data": list()}:
                return bytes(data if isinstance(data, list) else data["data"])
            case dict():
                return bytes(data[str(at)] for at in range(len(data)))
    except (binascii.Error, ValueError, TypeError, KeyError):
        pass
    raise InvalidValue(f"{path}: wanted bytes, as base64 or as an array of numbers up to 255", param=path)


def text_in(data: bytes, path: str, losses: Losses) -> str:
    """Bytes as text."""
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and text.encode() != data:
        losses.add(path, "bytes that are no UTF-8", "they were replaced by U+FFFD")
    return text


def url_of(mime_type: str, data: bytes) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def binary_note(mime_type: str) -> str:
    """What stands in a text for data that has no place there."""
    return f"[Binary data: {mime_type}]"


def given_data(part: PartIn, path: str, choices: ChoicesIn, losses: Losses) -> InputText | InputImageParam | InputFileParam:
    """A-3: data that somebody gives the model."""
    mime_type = str(part.mime_type)
    data = bytes_in(wanted(part.data, f"{path}.data"), f"{path}.data")
    form = form_of(mime_type)
    if form == "image":
        return InputImageParam(image_url=url_of(mime_type, data))
    if form == "text" or (form == "json" and choices.json == "text"):
        return InputText(text=text_in(data, f"{path}.data", losses))
    return InputFileParam(file_data=url_of(mime_type, data))


def said_data(part: PartIn, path: str, losses: Losses) -> str:
    """A-3: data that the model gave in an earlier turn, which an answer has no place for."""
    mime_type = str(part.mime_type)
    data = bytes_in(wanted(part.data, f"{path}.data"), f"{path}.data")
    if form_of(mime_type) in ("text", "json"):
        return text_in(data, f"{path}.data", losses)
    losses.add(path, f"data of the type {mime_type!r}", "a message of the assistant's has no place for it: a note stands there")
    return binary_note(mime_type)


def cache_mark(part: PartIn, path: str) -> Raw | None:
    """The mark that a prompt may be cached up to here, as servers that know it are told; None if it is another mark."""
    if part.mime_type != CACHE_CONTROL:
        return None
    kind = bytes_in(wanted(part.data, f"{path}.data"), f"{path}.data")
    return EPHEMERAL if kind == b"ephemeral" else None


KINDS: Final[dict[str, PartKind]] = {kind: kind for kind in get_args(PartKind)}
CACHE_CONTROL: Final = "cache_control"
EPHEMERAL: Final = Raw(b'{"type":"ephemeral"}')
