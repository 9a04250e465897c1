"""The rules of the Messages API for a single content block: its members, its place, its media.

The comment of each rule names what it copies.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from antiphon.rules.content import describe_part, part_type_path, type_of
from antiphon.rules.messages.members import Members, check_members, refuse
from antiphon.rules.report import Report, as_json


def check_block(block: Any, path: str, allowed: tuple[str, ...], report: Report, *, blank: bool = False) -> bool:
    """Check a block of one of the allowed types; return whether it is well formed. `blank` allows blank text."""
    kind = type_of(block)
    # An unknown type is refused with the list of known ones: parts of other APIs (`input_text`, `image_url`) have no
    # place.
    if kind not in BLOCKS:
        flaw, tags = describe_part(block, allowed), ", ".join(BLOCKS)
        server_text = f"Input tag {kind!r} found using 'type' does not match any of the expected tags: {tags}"
        refuse(report, flaw.rule, path, server_text, flaw.problem, exact_path=part_type_path(block, path))
        return False
    # "`tool_use` blocks can only be in `assistant` messages", and so on: each role has its blocks.
    if kind not in allowed:
        server_text = f"`{kind}` blocks are not permitted here; permitted are {', '.join(allowed)}"
        refuse(report, "discriminator", path, server_text, exact_path=f"{path}.type")
        return False
    members = BLOCKS[kind]
    if not check_members(block, f"{path}.{kind}", members, report):
        return False
    check_cache_control(block.get("cache_control"), f"{path}.{kind}", report)
    match kind:
        case "text":
            _check_text(block, path, report, blank=blank)
        case "image":
            if _check_source(block["source"], f"{path}.image.source", IMAGE_SOURCES, report):
                _check_image(block["source"], f"{path}.image.source", report)
        case "document":
            if _check_source(block["source"], f"{path}.document.source", DOCUMENT_SOURCES, report):
                _check_document(block["source"], f"{path}.document.source", report)
        case "tool_use":
            _check_call(block, f"{path}.tool_use", report)
        case "tool_result":
            _check_result(block, f"{path}.tool_result", report)
    return True


def check_cache_control(value: Any, path: str, report: Report) -> None:
    exact_path = f"{path}.cache_control"
    if value is None or not check_members(value, exact_path, CACHE_CONTROL, report):
        return
    # Only the ephemeral cache exists, for five minutes or an hour.
    if value["type"] != "ephemeral" or value.get("ttl", "5m") not in ("5m", "1h"):
        server_text = f"{value!r} is not of type ephemeral with a ttl of 5m or 1h"
        refuse(
            report,
            "value",
            exact_path,
            server_text,
            f"{as_json(value)} is not of type ephemeral with a ttl of 5m or 1h",
        )


def check_tool_name(name: Any, path: str, report: Report) -> bool:
    """Return whether it is the name of a tool: 1 to 128 letters, digits, underscores and dashes."""
    if isinstance(name, str) and TOOL_NAME.fullmatch(name):
        return True
    problem = f"{as_json(name)} is not a valid name: expected {TOOL_NAME.pattern}"
    refuse(report, "name", f"{path}.name", f"String should match pattern '^{TOOL_NAME.pattern}$'", problem)
    return False


def _check_text(block: dict[str, Any], path: str, report: Report, *, blank: bool) -> None:
    # "text content blocks must be non-empty", and since 2025 "must contain non-whitespace text".
    if not block["text"]:
        refuse(report, "value", path, "text content blocks must be non-empty")
    elif not blank and not block["text"].strip():
        refuse(report, "value", path, "text content blocks must contain non-whitespace text")


def _check_source(source: dict[str, Any], path: str, sources: dict[str, Members], report: Report) -> bool:
    """Return whether the source is well formed."""
    kind = type_of(source)
    if kind not in sources:
        server_text = f"Input tag {kind!r} found using 'type' does not match any of {', '.join(sources)}"
        problem = f"{as_json(source.get('type'))} is no type of source: expected one of {', '.join(sources)}"
        refuse(report, "discriminator", path, server_text, problem, exact_path=f"{path}.type")
        return False
    if not check_members(source, f"{path}.{kind}", sources[kind], report):
        return False
    # "Only HTTPS URLs are supported": the server fetches them itself.
    if kind == "url" and not source["url"].startswith("https://"):
        refuse(report, "media", f"{path}.url.url", "Only HTTPS URLs are supported")
    # Data is plain base64: a data URL, blanks or the URL alphabet are "Invalid base64 data".
    if kind == "base64" and not _is_base64(source["data"]):
        refuse(report, "media", f"{path}.base64.data", "Invalid base64 data")
        return False
    return True


def _check_image(source: dict[str, Any], path: str, report: Report) -> None:
    if source["type"] != "base64":
        return
    media_type = source["media_type"]
    # Four media types and no other: SVG, HEIC and `image/jpg` are refused.
    if media_type not in SIGNS:
        problem = f"{as_json(media_type)} is none of {', '.join(SIGNS)}"
        server_text = f"Input should be {', '.join(map(repr, SIGNS))}"
        refuse(report, "media", f"{path}.base64.media_type", server_text, problem)
        return
    # "The image was specified using the image/jpeg media type, but the image appears to be a image/png image."
    start = base64.b64decode(source["data"][:16])
    seen = next((kind for kind, sign in SIGNS.items() if sign.match(start)), media_type)
    if seen != media_type:
        server_text = f"the image is said to be {media_type}, but it appears to be {seen}"
        refuse(report, "media", path, server_text, exact_path=f"{path}.base64.media_type")


def _check_document(source: dict[str, Any], path: str, report: Report) -> None:
    # Base64 documents are PDFs; plain text is a source of its own, with its own media type.
    expected = {"base64": "application/pdf", "text": "text/plain"}.get(source["type"])
    if expected is not None and source["media_type"] != expected:
        exact_path, problem = (
            f"{path}.{source['type']}.media_type",
            f"{as_json(source['media_type'])} is not {expected}",
        )
        refuse(report, "media", exact_path, f"Input should be {expected!r}", problem)


def _check_call(block: dict[str, Any], path: str, report: Report) -> None:
    # "String should match pattern '^[a-zA-Z0-9_-]+$'": ids with dots, colons or slashes are refused. Ids of 128
    # characters are accepted, so there is no limit to their length.
    if not CALL_ID.fullmatch(block["id"]):
        problem = f"{as_json(block['id'])} is not a valid id: expected {CALL_ID.pattern}"
        refuse(report, "long_id", f"{path}.id", f"String should match pattern '^{CALL_ID.pattern}$'", problem)
    check_tool_name(block["name"], path, report)


def _check_result(block: dict[str, Any], path: str, report: Report) -> None:
    is_error, content = block.get("is_error"), block.get("content")
    if is_error is not None and not isinstance(is_error, bool):
        problem = f"{as_json(is_error)} is not a boolean"
        refuse(report, "value", f"{path}.is_error", "Input should be a valid boolean", problem)
    # The content may be absent, a string, even an empty one, or blocks; null or an object are none of these.
    if "content" in block and not isinstance(content, str | list):
        problem = f"{as_json(content)} is neither a string nor a list"
        refuse(report, "value", f"{path}.content", "Input should be a valid string or list", problem)
    # "content cannot be empty if `is_error` is true": of a tool that did not fail it may be.
    elif is_error and not content:
        refuse(report, "value", path, "content cannot be empty if `is_error` is true", exact_path=f"{path}.content")
    for index, inner in enumerate(report.walk(content if isinstance(content, list) else ())):
        is_whole = check_block(inner, f"{path}.content.{index}", IN_RESULTS, report, blank=True)
        # "all content must be type text if is_error is true".
        if is_whole and is_error and inner["type"] != "text":
            server_text = "all content must be of type `text` if `is_error` is true"
            refuse(report, "combination", path, server_text, exact_path=f"{path}.content.{index}.type")


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _block(required: dict[str, type], optional: tuple[str, ...] = ("cache_control",)) -> Members:
    return Members({"type": str, **required}, optional)


def _thought(required: dict[str, type]) -> Members:
    return Members({"type": str, **required}, rule="reasoning", settings=("quirks: drop_reasoning",))


CACHE_CONTROL: Final = Members({"type": str}, ("ttl",))
FROM_SERVER: Final = _block({"tool_use_id": str, "content": object}, ("cache_control", "caller"))
BLOCKS: Final[dict[str, Members]] = {
    "text": _block({"text": str}, ("cache_control", "citations")),
    "image": _block({"source": dict}, ("cache_control", "transformations")),
    "document": _block({"source": dict}, ("cache_control", "citations", "context", "title")),
    "search_result": _block({"source": str, "title": str, "content": list}, ("cache_control", "citations")),
    "container_upload": _block({"file_id": str}),
    "thinking": _thought({"thinking": str, "signature": str}),
    "redacted_thinking": _thought({"data": str}),
    "tool_use": _block({"id": str, "name": str, "input": dict}, ("cache_control", "caller", "toolset_name")),
    "tool_result": _block({"tool_use_id": str}, ("content", "is_error", "cache_control", "toolset_name")),
    "tool_reference": _block({"tool_name": str}),
    "server_tool_use": _block({"id": str, "name": str, "input": dict}, ("cache_control", "caller")),
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
    "base64": _block({"data": str, "media_type": str}, ()),
    "url": _block({"url": str}, ()),
    "file": _block({"file_id": str}, ()),
}
DOCUMENT_SOURCES: Final = {
    **IMAGE_SOURCES,
    "text": _block({"data": str, "media_type": str}, ()),
    "content": _block({"content": object}, ()),
}
SIGNS: Final = {
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG"),
    "image/gif": re.compile(rb"GIF8"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
