"""Documents in a message: the text of those that are only text, and addresses that are no documents."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.content import ContentParam, InputFileParam, UnknownContent
from antiphon.protocol.losses import Losses


def text_of_document(part: ContentParam, path: str, losses: Losses) -> str | None:
    """Return the text of a text file, a search result or a document with text blocks; None for all other parts. What
    such a part has besides text is a loss."""
    match part:
        case InputFileParam(file_data=str() as data) if data.startswith("data:text/"):
            text = _join(part.filename, _decode(data.partition(";base64,")[2]))
            if text is not None:
                report_unknown_fields(part, path, losses)
            return text
        case UnknownContent(kind="messages:search_result"):
            block = msgspec.json.decode(part.raw)
            lines, content, content_path = (block.get("title"), block.get("source")), block.get("content"), "content"
        case UnknownContent(kind="messages:document"):
            block = msgspec.json.decode(part.raw)
            source = block.get("source")
            content = source.get("content") if isinstance(source, dict) else None
            lines, content_path = (block.get("title"), block.get("context")), "source.content"
        case _:
            return None
    text = _texts_in(content, f"{path}.{content_path}", losses)
    citations = block.get("citations")
    if text and isinstance(citations, dict) and citations.get("enabled"):
        losses.add(f"{path}.citations", "the request for citations", NO_EQUIVALENT)
    return _join(*lines, text)


def is_video_page(url: str) -> bool:
    """Whether an address is the page of a video at YouTube, which is no document."""
    return VIDEO_PAGE.match(url) is not None


def _join(*lines: Any) -> str | None:
    """The lines, of which the last must be a text."""
    return "\n".join(line for line in lines if isinstance(line, str) and line) if lines[-1] else None


def _texts_in(content: Any, path: str, losses: Losses) -> str | None:
    """A text, or the texts in a list of blocks. Other blocks become notes; None if no block is a text."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    if not any(isinstance(text, str) for text in texts):
        return None
    lines: list[str] = []
    for index, (block, text) in enumerate(zip(blocks, texts, strict=True)):
        if isinstance(text, str):
            lines.append(text)
            continue
        kind = str(block.get("type"))[:MAX_KIND_LENGTH] if isinstance(block, dict) else "block"
        losses.add(f"{path}[{index}]", f"a block of type {kind!r}", "only the text of a document is sent")
        lines.append(f"[{kind} omitted]")
    return "\n".join(lines)


def _decode(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 inside
        return None


NO_EQUIVALENT: Final = "the API has no equivalent"
MAX_KIND_LENGTH: Final = 100  # characters
VIDEO_PAGE: Final = re.compile(r"https?://(?:(?:www\.|m\.)?youtube\.com/|youtu\.be/)", re.IGNORECASE)
