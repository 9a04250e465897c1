"""The rules of the Messages API for a single content block: its members, its place, its media.

A rule raises `MessagesRequestRefused` with a path in the form of these servers (`messages.1.content.0`). The comment of
each rule names what it copies.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from msgspec import Struct

from antiphon.testing.messages.errors import MessagesRequestRefused


class Members(Struct, frozen=True):
    """What an object must have, each with its type, and what else it may have."""

    must: dict[str, type]
    may: tuple[str, ...] = ()


def check_members(value: Any, path: str, members: Members) -> dict[str, Any]:
    """The object, which has all that it must have and nothing that is unknown."""
    # The validator of this API names the path, then what is wrong there, in these words.
    if not isinstance(value, dict):
        raise MessagesRequestRefused(f"{path}: Input should be a valid dictionary")
    for name, kind in members.must.items():
        if name not in value:
            raise MessagesRequestRefused(f"{path}.{name}: Field required")
        if not isinstance(value[name], kind):
            raise MessagesRequestRefused(f"{path}.{name}: Input should be a valid {WORDS[kind]}")
    for name in value:
        # "Extra inputs are not permitted": an unknown member is refused wherever it stands, never passed over.
        if name not in members.must and name not in members.may:
            raise MessagesRequestRefused(f"{path}.{name}: Extra inputs are not permitted")
    return value


def kind_of(block: Any) -> str:
    """The type of a block or of anything else that is told apart by `type`."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def check_block(block: Any, path: str, allowed: tuple[str, ...], *, blank: bool = False) -> None:
    """A block of one of the allowed types; `blank` allows text that is all white space."""
    kind = kind_of(block)
    # An unknown type is refused with the list of known ones: parts of other APIs (`input_text`, `image_url`) have no
    # place.
    if kind not in BLOCKS:
        raise MessagesRequestRefused(
            f"{path}: Input tag {kind!r} found using 'type' does not match any of the expected tags: "
            f"{', '.join(BLOCKS)}"
        )
    # "`tool_use` blocks can only be in `assistant` messages", and so on: each role has its blocks.
    if kind not in allowed:
        raise MessagesRequestRefused(
            f"{path}: `{kind}` blocks are not permitted here; permitted are {', '.join(allowed)}"
        )
    members = BLOCKS[kind]
    check_members(block, f"{path}.{kind}", Members({"type": str, **members.must}, members.may))
    check_cache_control(block.get("cache_control"), f"{path}.{kind}")
    match kind:
        case "text":
            _check_text(block, path, blank=blank)
        case "image":
            _check_source(block["source"], f"{path}.image.source", IMAGE_SOURCES)
            _check_image(block["source"], f"{path}.image.source")
        case "document":
            _check_source(block["source"], f"{path}.document.source", DOCUMENT_SOURCES)
            _check_document(block["source"], f"{path}.document.source")
        case "tool_use":
            _check_call(block, f"{path}.tool_use")
        case "tool_result":
            _check_result(block, f"{path}.tool_result")


def check_cache_control(value: Any, path: str) -> None:
    if value is None:
        return
    check_members(value, f"{path}.cache_control", Members({"type": str}, ("ttl",)))
    # Only the ephemeral cache exists, for five minutes or an hour.
    if value["type"] != "ephemeral" or value.get("ttl", "5m") not in ("5m", "1h"):
        raise MessagesRequestRefused(f"{path}.cache_control: {value!r} is not of type ephemeral with a ttl of 5m or 1h")


def _check_text(block: dict[str, Any], path: str, *, blank: bool) -> None:
    # "text content blocks must be non-empty", and since 2025 "must contain non-whitespace text".
    if not block["text"]:
        raise MessagesRequestRefused(f"{path}: text content blocks must be non-empty")
    if not blank and not block["text"].strip():
        raise MessagesRequestRefused(f"{path}: text content blocks must contain non-whitespace text")


def _check_source(source: dict[str, Any], path: str, sources: dict[str, Members]) -> None:
    kind = kind_of(source)
    if kind not in sources:
        raise MessagesRequestRefused(
            f"{path}: Input tag {kind!r} found using 'type' does not match any of {', '.join(sources)}"
        )
    check_members(source, f"{path}.{kind}", Members({"type": str, **sources[kind].must}, sources[kind].may))
    # "Only HTTPS URLs are supported": the server fetches them itself.
    if kind == "url" and not source["url"].startswith("https://"):
        raise MessagesRequestRefused(f"{path}.url.url: Only HTTPS URLs are supported")
    # Data is plain base64: a data URL, blanks or the URL alphabet are "Invalid base64 data".
    if kind == "base64" and not _is_base64(source["data"]):
        raise MessagesRequestRefused(f"{path}.base64.data: Invalid base64 data")


def _check_image(source: dict[str, Any], path: str) -> None:
    if source["type"] != "base64":
        return
    media_type = source["media_type"]
    # Four media types and no other: SVG, HEIC and `image/jpg` are refused.
    if media_type not in SIGNS:
        raise MessagesRequestRefused(f"{path}.base64.media_type: Input should be {', '.join(map(repr, SIGNS))}")
    # "The image was specified using the image/jpeg media type, but the image appears to be a image/png image."
    start = base64.b64decode(source["data"][:16])
    seen = next((kind for kind, sign in SIGNS.items() if sign.match(start)), media_type)
    if seen != media_type:
        raise MessagesRequestRefused(f"{path}: the image is said to be {media_type}, but it appears to be {seen}")


def _check_document(source: dict[str, Any], path: str) -> None:
    # Base64 documents are PDFs; plain text is a source of its own, with its own media type.
    wanted = {"base64": "application/pdf", "text": "text/plain"}.get(source["type"])
    if wanted is not None and source["media_type"] != wanted:
        raise MessagesRequestRefused(f"{path}.{source['type']}.media_type: Input should be {wanted!r}")


def _check_call(block: dict[str, Any], path: str) -> None:
    # "String should match pattern '^[a-zA-Z0-9_-]+$'": ids with dots, colons or slashes are refused.
    if not CALL_ID.fullmatch(block["id"]):
        raise MessagesRequestRefused(f"{path}.id: String should match pattern '^{CALL_ID.pattern}$'")
    check_tool_name(block["name"], path)


def check_tool_name(name: Any, path: str) -> str:
    # Names of tools: 1 to 128 letters, digits, underscores and dashes; no dots, no slashes.
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise MessagesRequestRefused(f"{path}.name: String should match pattern '^{TOOL_NAME.pattern}$'")
    return name


def _check_result(block: dict[str, Any], path: str) -> None:
    is_error, content = block.get("is_error"), block.get("content")
    if is_error is not None and not isinstance(is_error, bool):
        raise MessagesRequestRefused(f"{path}.is_error: Input should be a valid boolean")
    # The content may be absent, a string, even an empty one, or blocks; null or an object are none of these.
    if "content" in block and not isinstance(content, str | list):
        raise MessagesRequestRefused(f"{path}.content: Input should be a valid string or list")
    # "content cannot be empty if `is_error` is true": of a tool that did not fail it may be.
    if is_error and not content:
        raise MessagesRequestRefused(f"{path}: content cannot be empty if `is_error` is true")
    blocks = content if isinstance(content, list) else []
    for at, inner in enumerate(blocks):
        check_block(inner, f"{path}.content.{at}", IN_RESULTS, blank=True)
        # "all content must be type text if is_error is true".
        if is_error and inner["type"] != "text":
            raise MessagesRequestRefused(f"{path}: all content must be of type `text` if `is_error` is true")


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


CACHED: Final = ("cache_control",)
FROM_SERVER: Final = Members({"tool_use_id": str, "content": object}, ("cache_control", "caller"))
BLOCKS: Final[dict[str, Members]] = {
    "text": Members({"text": str}, ("cache_control", "citations")),
    "image": Members({"source": dict}, ("cache_control", "transformations")),
    "document": Members({"source": dict}, ("cache_control", "citations", "context", "title")),
    "search_result": Members({"source": str, "title": str, "content": list}, ("cache_control", "citations")),
    "container_upload": Members({"file_id": str}, CACHED),
    "thinking": Members({"thinking": str, "signature": str}),
    "redacted_thinking": Members({"data": str}),
    "tool_use": Members({"id": str, "name": str, "input": dict}, ("cache_control", "caller", "toolset_name")),
    "tool_result": Members({"tool_use_id": str}, ("content", "is_error", "cache_control", "toolset_name")),
    "tool_reference": Members({"tool_name": str}, CACHED),
    "server_tool_use": Members({"id": str, "name": str, "input": dict}, ("cache_control", "caller")),
    "web_search_tool_result": FROM_SERVER,
    "web_fetch_tool_result": FROM_SERVER,
    "code_execution_tool_result": FROM_SERVER,
    "bash_code_execution_tool_result": FROM_SERVER,
    "text_editor_code_execution_tool_result": FROM_SERVER,
    "tool_search_tool_result": FROM_SERVER,
}
IN_USER: Final = ("text", "image", "document", "search_result", "container_upload", "tool_result")
IN_ASSISTANT: Final = (
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    *(kind for kind, members in BLOCKS.items() if members is FROM_SERVER),
)
IN_RESULTS: Final = ("text", "image", "document", "search_result", "tool_reference")
IN_SYSTEM: Final = ("text",)
IMAGE_SOURCES: Final = {
    "base64": Members({"data": str, "media_type": str}),
    "url": Members({"url": str}),
    "file": Members({"file_id": str}),
}
DOCUMENT_SOURCES: Final = {
    **IMAGE_SOURCES,
    "text": Members({"data": str, "media_type": str}),
    "content": Members({"content": object}),
}
SIGNS: Final = {
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG"),
    "image/gif": re.compile(rb"GIF8"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
WORDS: Final = {str: "string", dict: "dictionary", list: "list", int: "integer", bool: "boolean", object: "value"}
