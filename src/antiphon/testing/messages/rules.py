"""What a strict server of the Messages API refuses: the rules of the API, and what depends on one server (key, models,
context, issued thoughts).

`check` and `check_count` return the body or raise `MessagesRequestRefused`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.rules import Report, Violation, messages
from antiphon.rules.content import texts_in, type_of
from antiphon.rules.messages import MessagesOptions
from antiphon.rules.messages.history import blocks_of
from antiphon.testing.messages.errors import MessagesRequestRefused
from antiphon.testing.messages.issued_thoughts import IssuedThoughts
from antiphon.testing.script import ReceivedRequest


class MessagesLimits(MessagesOptions, frozen=True, kw_only=True):
    """What one server allows."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    max_bytes: int = 32 * 1024 * 1024
    strict: bool = True


class StrictReport(Report):
    """Refuses a request at the first violation, in the form of this API."""

    def receive(self, violation: Violation) -> None:
        raise MessagesRequestRefused(violation.message)


def check(request: ReceivedRequest, limits: MessagesLimits, thoughts: IssuedThoughts) -> dict[str, Any]:
    """Check a request for a message."""
    return _check_request(request, limits, thoughts, is_count=False)


def check_count(request: ReceivedRequest, limits: MessagesLimits, thoughts: IssuedThoughts) -> dict[str, Any]:
    """Check a request to count tokens: the same conversation, without the settings of the message."""
    return _check_request(request, limits, thoughts, is_count=True)


def check_key(request: ReceivedRequest, limits: MessagesLimits) -> None:
    # The key is in its own header or is a bearer token. A missing or wrong key is a 401.
    key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
    if limits.key is not None and key != limits.key:
        raise MessagesRequestRefused("invalid x-api-key" if key else "x-api-key header is required", status=401)


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    contents = [body.get("system")]
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            continue
        contents.append(message["content"])
        contents += [block.get("content") for block in blocks_of(message) if type_of(block) == "tool_result"]
    return sum(len(text) for content in contents for text in texts_in(content))


def _check_request(
    request: ReceivedRequest, limits: MessagesLimits, thoughts: IssuedThoughts, *, is_count: bool
) -> dict[str, Any]:
    # "Request exceeds the maximum size": 32 MB. This is checked first.
    if len(request.body) > limits.max_bytes:
        raise MessagesRequestRefused(f"Request exceeds the maximum size of {limits.max_bytes} bytes", status=413)
    check_key(request, limits)
    version = _read_version(request) if limits.strict else ""
    body = _json_object(request)
    if limits.strict:
        betas = ",".join(name for header, name in request.headers.items() if BETA_HEADER.fullmatch(header))
        report = StrictReport()
        messages.check(body, report, limits, is_newest=version == NEWEST_VERSION, is_count=is_count, betas=betas)
        _check_thoughts(body["messages"], thoughts)
    _check_model(body, limits)
    _check_length(body, limits)
    return body


def _read_version(request: ReceivedRequest) -> str:
    # "…-version: header is required". Its value must be one version; a repeated header is invalid.
    versions = [value for name, value in request.headers.items() if VERSION_HEADER.fullmatch(name)]
    if not versions:
        raise MessagesRequestRefused("the header with the version of the API is required")
    if versions[0] not in VERSIONS:
        raise MessagesRequestRefused(f"{versions[0]!r} is not a valid version of the API")
    return versions[0]


def _json_object(request: ReceivedRequest) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise MessagesRequestRefused(
            f"the content type is {content_type or 'missing'}, not application/json", status=415
        )
    body = request.json
    # "The request body is not valid JSON".
    if not isinstance(body, dict):
        raise MessagesRequestRefused("The request body is not valid JSON, or no object")
    return body


def _check_thoughts(messages: list[dict[str, Any]], thoughts: IssuedThoughts) -> None:
    for index, message in enumerate(messages):
        for block_index, block in enumerate(blocks_of(message)):
            path = f"messages.{index}.content.{block_index}"
            # "Invalid `signature` in `thinking` block": thoughts that were changed, invented, or issued by another
            # server.
            if block["type"] == "thinking" and not thoughts.is_issued(block["thinking"], block["signature"]):
                raise MessagesRequestRefused(f"{path}: Invalid `signature` in `thinking` block")
            if block["type"] == "redacted_thinking" and not thoughts.is_issued_redacted(block["data"]):
                raise MessagesRequestRefused(f"{path}: Invalid `data` in `redacted_thinking` block")


def _check_model(body: dict[str, Any], limits: MessagesLimits) -> None:
    messages.check_model(body, StrictReport())
    # A model that is not served is a 404 of type not_found_error.
    if limits.models is not None and body["model"] not in limits.models:
        raise MessagesRequestRefused(f"model: {body['model']}", status=404)


def _check_length(body: dict[str, Any], limits: MessagesLimits) -> None:
    # "prompt is too long: 200251 tokens > 200000 maximum".
    if limits.max_chars is not None and (chars := prompt_chars(body)) > limits.max_chars:
        raise MessagesRequestRefused(f"prompt is too long: {chars} tokens > {limits.max_chars} maximum")


VERSION_HEADER: Final = re.compile(r"[a-z]+-version")
NEWEST_VERSION: Final = "2026-10-21"
VERSIONS: Final = ("2023-01-01", "2023-06-01", NEWEST_VERSION)
BETA_HEADER: Final = re.compile(r"[a-z]+-beta")
