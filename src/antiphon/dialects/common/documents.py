"""Documents in a message: the text of those that are only text, and addresses that are no documents."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec

from antiphon.protocol.content import ContentParam, InputFileParam, UnknownContent


def text_of_document(part: ContentParam) -> str | None:
    """Return the text of a text file, a search result or a document of text blocks; None for all other parts."""
    match part:
        case InputFileParam(file_data=str() as data) if data.startswith("data:text/"):
            return _join(part.filename, _decode(data.partition(";base64,")[2]))
        case UnknownContent(kind="messages:search_result"):
            block = msgspec.json.decode(part.raw)
            return _join(block.get("title"), block.get("source"), _texts_in(block.get("content")))
        case UnknownContent(kind="messages:document"):
            block = msgspec.json.decode(part.raw)
            source = block.get("source")
            text = _texts_in(source.get("content")) if isinstance(source, dict) else None
            return _join(block.get("title"), block.get("context"), text)
        case _:
            return None


def is_video_page(url: str) -> bool:
    """Whether an address is the page of a video at YouTube, which is no document."""
    return VIDEO_PAGE.match(url) is not None


def _join(*lines: Any) -> str | None:
    """The lines, of which the last must be a text."""
    return "\n".join(line for line in lines if isinstance(line, str) and line) if lines[-1] else None


def _texts_in(content: Any) -> str | None:
    """A text, or the texts of a list of text blocks; None if there is anything else."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "\n".join(texts) if len(texts) == len(blocks) else None


def _decode(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 inside
        return None


VIDEO_PAGE: Final = re.compile(r"https?://(?:(?:www\.|m\.)?youtube\.com/|youtu\.be/)", re.IGNORECASE)
