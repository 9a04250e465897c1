"""Translates content of hub messages and tool outputs to blocks. Unsupported content becomes a note and a loss.

A cache mark becomes `cache_control` (E-4). Block members that a client of this dialect set are restored; any other
unknown field is a loss. Blank texts are left out, because servers refuse them.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import (
    CACHE_CONTROL,
    CACHE_MARK,
    cache_control_from_mark,
    is_breakpoint,
    mark_of,
    take_mark,
)
from antiphon.dialects.common.documents import is_video_page
from antiphon.dialects.common.placeholders import replace_with_placeholder
from antiphon.dialects.common.unknown_fields import REDUNDANT_FIELDS, report_unknown_fields
from antiphon.dialects.messages.wire import (
    CITATION_SERVER_MEMBERS,
    DOCUMENT_FIELD,
    NATIVE_BLOCKS,
    PREFIX,
    WEB_CITATION,
    Block,
    DocumentBlock,
    ImageBlock,
    KnownBlock,
    MessagesWire,
    SourceOut,
    TextBlock,
)
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    UnknownAnnotation,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.losses import Losses


class ContentFromHub:
    """Translates parts for one server; `path` and `member` locate their list in the request."""

    def __init__(self, wire: MessagesWire, losses: Losses, cache_ttl: str | None | UnsetType = UNSET) -> None:
        self._wire = wire
        self._losses = losses
        self._cache_ttl = cache_ttl  # of the whole request
        self.has_breakpoints = False

    def blocks(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[Block]:
        """Blocks for user messages and tool outputs, which allow every kind of part."""
        if isinstance(content, str):
            return self._unless_blank(TextBlock(text=content), f"{path}.{member}")
        parts_with_paths = [(f"{path}.{member}[{index}]", part) for index, part in enumerate(content, first)]
        return [block for part_path, part in parts_with_paths for block in self._blocks_of_part(part, part_path)]

    def texts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[Block]:
        """Blocks for system and assistant messages, which allow only text and this dialect's own blocks."""
        if isinstance(content, str):
            return self._unless_blank(TextBlock(text=content), f"{path}.{member}")
        parts_with_paths = [(f"{path}.{member}[{index}]", part) for index, part in enumerate(content, first)]
        return [block for part_path, part in parts_with_paths for block in self._text_blocks(part, part_path)]

    def with_fields(self, block: KnownBlock, shape: Shape, path: str, native_names: Collection[str]) -> Block:
        """Add those unknown fields of `shape` that this dialect has (`native_names`); others are losses."""
        if not shape.extra:
            return block
        mark = mark_of(shape)
        self.has_breakpoints = self.has_breakpoints or (mark is not None and is_breakpoint(mark))
        native_fields = native_members(shape, path, native_names, self._losses, self._cache_ttl)
        return {**block_to_dict(block), **native_fields} if native_fields else block

    def _blocks_of_part(self, part: ContentParam, path: str) -> Iterable[Block]:
        match part:
            case InputImageParam():
                return [self._image_block(part, path)]
            case InputFileParam():
                return [self._document_block(part, path)]
            case InputText(extra=dict() as extra) if DOCUMENT_FIELD in extra and self._wire.documents:
                return [self._own_document(part, extra, path)]
            case UnknownContent() if part.kind in NATIVE_BLOCKS:
                return [part.raw]
            case _:
                return self._text_blocks(part, path)

    def _text_blocks(self, part: ContentParam, path: str) -> Iterable[Block]:
        match part:
            case InputText() | Text() | SummaryText() | ReasoningText():
                block = self.with_fields(TextBlock(text=part.text), part, path, TEXT_FIELDS)
            case OutputTextParam():
                block = self._output_text_block(part, path)
            case Refusal():
                self._losses.add(path, "the mark that a text is a refusal", "it is sent as plain text")
                block = self.with_fields(TextBlock(text=part.refusal), part, path, TEXT_FIELDS)
            case UnknownContent() if part.kind.startswith(PREFIX):
                return [part.raw]
            case _:
                block = self._placeholder_block(part, path, NO_EQUIVALENT)
        return self._unless_blank(block, path)

    def _unless_blank(self, block: Block, path: str) -> list[Block]:
        if block_text(block).strip():
            return [block]
        self._losses.add(path, "a blank text", "the server refuses it")
        return []

    def _output_text_block(self, part: OutputTextParam, path: str) -> Block:
        if part.logprobs:
            self._losses.add(f"{path}.logprobs", "log probabilities", NO_EQUIVALENT)
        block = self.with_fields(TextBlock(text=part.text), part, path, TEXT_FIELDS)
        citations = [
            citation
            for index, annotation in enumerate(part.annotations or ())
            if (citation := self._citation_or_none(annotation, f"{path}.annotations[{index}]"))
        ]
        return {**block_to_dict(block), "citations": citations} if citations else block

    def _citation_or_none(self, annotation: UrlCitationParam | UnknownAnnotation, path: str) -> dict[str, Any] | None:
        """A citation, for the server that made it. Servers refuse a citation without their own mark."""
        is_foreign = isinstance(annotation, UrlCitationParam) and "encrypted_index" not in (annotation.extra or {})
        citation = None if is_foreign else citation_from_hub(annotation)
        if citation is None:
            self._losses.add(path, "a citation", "the server accepts only citations of its own search results")
        return citation

    def _image_block(self, part: InputImageParam, path: str) -> Block:
        if not self._wire.images:
            return self._placeholder_block(part, path, "the server does not support images")
        source = _image_source(part)
        if source is None:
            return self._placeholder_block(
                part, path, "the API accepts only inline images (JPEG, PNG, GIF, WebP) and https URLs"
            )
        if part.detail and part.detail != "auto":
            self._losses.add(f"{path}.detail", f"the detail {part.detail!r}", "the API has no equivalent")
        if part.file_id and source.type != "file":
            self._losses.add(f"{path}.file_id", "the file id of an image", "its content is sent instead")
        return self.with_fields(ImageBlock(source=source), part, path, IMAGE_FIELDS)

    def _document_block(self, part: InputFileParam, path: str) -> Block:
        if not self._wire.documents:
            return self._placeholder_block(part, path, "the server does not support documents")
        source = _document_source(part)
        if source is None:
            return self._placeholder_block(
                part, path, "the API accepts only inline documents (PDF or text) and https URLs"
            )
        for name, value, kind in (("file_url", part.file_url, "url"), ("file_id", part.file_id, "file")):
            if value and source.type != kind:
                self._losses.add(f"{path}.{name}", f"the {name} of a file", "its content is sent instead")
        block = DocumentBlock(source=source, title=part.filename or UNSET)
        return self.with_fields(block, part, path, DOCUMENT_FIELDS)

    def _own_document(self, part: InputText, extra: dict[str, Raw], path: str) -> Block:
        """A document of a client of this dialect, with the cache mark of its part."""
        mark = {name: raw for name, raw in extra.items() if name == CACHE_MARK}
        fields = self.with_fields(TextBlock(text=""), replace(part, extra=mark), path, ())
        cache_control = {CACHE_CONTROL: fields[CACHE_CONTROL]} if isinstance(fields, dict) else {}
        return {**msgspec.json.decode(extra[DOCUMENT_FIELD], type=dict[str, Raw]), **cache_control}

    def _placeholder_block(self, part: ContentParam, path: str, why: str) -> TextBlock:
        return TextBlock(text=replace_with_placeholder(part, path, why, self._losses))


def native_members(
    shape: Shape, path: str, native_names: Collection[str], losses: Losses, cache_ttl: str | None | UnsetType
) -> dict[str, Any]:
    """The unknown fields of `shape` that this dialect has, and its cache mark; others are losses.

    Fields of clients of this dialect have a prefix. Of other clients' fields it has those in `native_names`.
    """
    rest, mark = take_mark(shape)
    members: dict[str, Any] = {}
    other_fields: dict[str, Raw] = {}
    for name, raw in (rest.extra or {}).items():
        if (name.startswith(PREFIX) and name not in REDUNDANT_FIELDS) or name in native_names:
            members[name.removeprefix(PREFIX)] = raw
        else:
            other_fields[name] = raw
    report_unknown_fields(Shape(extra=other_fields), path, losses)
    if mark is not None:
        members[CACHE_CONTROL] = cache_control_from_mark(mark, path, losses, cache_ttl)
    return members


def block_to_dict(block: Block) -> dict[str, Any]:
    """A block as a dict, to add members."""
    if isinstance(block, dict):
        return block
    assert not isinstance(block, Raw)
    members = {name: getattr(block, name) for name in block.__struct_fields__}
    return {
        "type": block.__struct_config__.tag,
        **{name: value for name, value in members.items() if value is not UNSET},
    }


def block_text(block: Block) -> str:
    """The text of a text block; empty for any other block."""
    match block:
        case TextBlock(text=text) | {"type": "text", "text": str(text)}:
            return text
        case _:
            return ""


def replace_text(block: Block, text: str) -> Block:
    """The text block with another text."""
    return {**block, "text": text} if isinstance(block, dict) else TextBlock(text=text)


def citation_from_hub(annotation: UrlCitationParam | UnknownAnnotation) -> dict[str, Any] | None:
    """Translate an annotation; None if this dialect has no such citation."""
    if isinstance(annotation, UnknownAnnotation):
        if not annotation.kind.startswith(PREFIX):
            return None
        return {**annotation.raw_members(), "type": annotation.kind.removeprefix(PREFIX)}
    # The members are required, but only the server that searched knows their values.
    server_members = {name: Raw(b'""') for name in CITATION_SERVER_MEMBERS} | (annotation.extra or {})
    return {"type": WEB_CITATION, "url": annotation.url, "title": annotation.title or None, **server_members}


def _image_source(part: InputImageParam) -> SourceOut | None:
    url = part.image_url or ""
    if url.startswith("https://"):
        return SourceOut(type="url", url=url)
    if url.startswith("data:"):
        kind, data = _split_data_url(url)
        # The first bytes decide the media type: servers refuse an image whose type does not match.
        kind = next((named for signature, named in IMAGE_SIGNATURES.items() if data.startswith(signature)), kind)
        return SourceOut(type="base64", media_type=kind, data=data) if kind in IMAGE_MEDIA_TYPES and data else None
    return _file_source(part.file_id)


def _document_source(part: InputFileParam) -> SourceOut | None:
    if part.file_data:
        kind, data = _split_data_url(part.file_data)
        if data.startswith(PDF_SIGNATURE) or kind == PDF_MEDIA_TYPE:
            return SourceOut(type="base64", media_type=PDF_MEDIA_TYPE, data=data)
        text = _decode_text(data) if kind.startswith("text/") or kind in TEXT_MEDIA_TYPES else None
        return None if text is None else SourceOut(type="text", media_type="text/plain", data=text)
    if part.file_url and part.file_url.startswith("https://") and not is_video_page(part.file_url):
        return SourceOut(type="url", url=part.file_url)
    return _file_source(part.file_id)


def _file_source(file_id: Any) -> SourceOut | None:
    """Whether a file id is one of this API. Ids of other APIs mean nothing to the server."""
    return SourceOut(type="file", file_id=file_id) if isinstance(file_id, str) and file_id.startswith("file_") else None


def _split_data_url(url: str) -> tuple[str, str]:
    """Media type and base64 data of a data URL; any other text counts as base64."""
    if not url.startswith("data:"):
        return "", url
    head, _, data = url.removeprefix("data:").partition(",")
    kind, _, coding = head.partition(";")
    return kind.lower(), data if coding.endswith("base64") else ""


def _decode_text(data: str) -> str | None:
    try:
        text = base64.b64decode(data, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 inside
        return None
    return text if text.strip() else None


NO_EQUIVALENT: Final = "the API has no equivalent"
TEXT_FIELDS: Final = frozenset({CACHE_CONTROL, "citations"})
IMAGE_FIELDS: Final = frozenset({CACHE_CONTROL, "transformations"})
DOCUMENT_FIELDS: Final = frozenset({CACHE_CONTROL, "citations", "context"})
PDF_MEDIA_TYPE: Final = "application/pdf"
PDF_SIGNATURE: Final = "JVBERi"  # %PDF, in base64
TEXT_MEDIA_TYPES: Final = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/javascript"}
)
IMAGE_MEDIA_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
#: The first base64 characters of image types.
IMAGE_SIGNATURES: Final = {"/9j/": "image/jpeg", "iVBORw": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
