"""What a strict gemini server refuses: the rules of the dialect, and what depends on one server (key, models, context,
issued signatures).

`check(call, request, limits, signatures)` returns the body or raises `GeminiRequestRefused`.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from antiphon.rules import Report, Violation
from antiphon.rules.gemini import GeminiOptions, check_request, read_request
from antiphon.testing.gemini.errors import GeminiRequestRefused, error_info, field_violations
from antiphon.testing.gemini.prompt import texts_of
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.script import ReceivedRequest


class GeminiLimits(GeminiOptions, frozen=True, kw_only=True):
    """What one server allows, beyond the options of its version. A strict server refuses unknown fields everywhere."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    strict: bool = True


class StrictReport(Report):
    """Refuses a request at the first violation, in the form of this API."""

    def receive(self, violation: Violation) -> None:
        raise GeminiRequestRefused(violation.message)


class ShapeReport(Report):
    """Collects the violations of the shape, which a server reports all at once."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def receive(self, violation: Violation) -> None:
        self.violations.append(violation)


class ModelCall(Struct, frozen=True, kw_only=True):
    """The parts of the URL: the model, the method (`generateContent`), and the form of the answer."""

    model: str
    method: str
    sse: bool

    @property
    def is_stream(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def is_array_stream(self) -> bool:
        """Whether the stream is one JSON array, because the client did not request events."""
        return self.is_stream and not self.sse


def parse_model_call(request: ReceivedRequest) -> ModelCall | None:
    """Parse the path of a model call; None if the path is not one."""
    path, _, query = request.path.partition("?")
    match = MODEL_CALL_PATH.fullmatch(unquote(path))
    return ModelCall(model=match[1], method=match[2], sse="sse" in parse_qs(query).get("alt", ())) if match else None


def check(call: ModelCall, request: ReceivedRequest, limits: GeminiLimits, signatures: Signatures) -> dict[str, Any]:
    """Return the body; every field has its camelCase name."""
    check_key(request, limits)
    _check_model(call, limits)
    body = read_body(request, "request", limits)
    _check_request(body, call.model, limits, signatures)
    return body


def check_count(
    call: ModelCall, request: ReceivedRequest, limits: GeminiLimits, signatures: Signatures
) -> dict[str, Any]:
    """Return the request whose tokens are counted."""
    check_key(request, limits)
    _check_model(call, limits)
    body = read_body(request, "countTokens", limits)
    # `contents` is "ignored when a generateContentRequest is set", and only one of the two may be there.
    if "contents" in body and "generateContentRequest" in body:
        raise GeminiRequestRefused("Request cannot have both `contents` and `generate_content_request`.")
    counted_request: dict[str, Any] = body.get("generateContentRequest", {"contents": body.get("contents", [])})
    _check_request(counted_request, call.model, limits, signatures)
    return counted_request


def check_key(request: ReceivedRequest, limits: GeminiLimits) -> None:
    """Check the key, which is in a header or in the query of the URL."""
    if limits.key is None:
        return
    query_keys = parse_qs(request.path.partition("?")[2]).get("key", [""])
    key = request.headers.get("x-goog-api-key", query_keys[0])
    # 403 for no key at all: "Method doesn't allow unregistered callers"
    if not key:
        raise GeminiRequestRefused("Method doesn't allow unregistered callers. Please use API Key.", status=403)
    # 400 for a wrong one, with the reason API_KEY_INVALID
    if key != limits.key:
        raise GeminiRequestRefused(
            "API key not valid. Please pass a valid API key.", details=[error_info("API_KEY_INVALID")]
        )


def read_body(request: ReceivedRequest, shape: str, limits: GeminiLimits) -> dict[str, Any]:
    # It says "Invalid JSON payload received. Unexpected token."
    if not isinstance(request.json, dict):
        raise GeminiRequestRefused("Invalid JSON payload received. Expected an object.")
    report = ShapeReport()
    body = read_request(request.json, shape, limits, report).value
    if report.violations and limits.strict:
        # All violations of the shape are reported at once: in the message, and for each field in the details.
        field_problems = [(violation.param or "", violation.message) for violation in report.violations]
        raise GeminiRequestRefused(
            "\n".join(message for _, message in field_problems), details=[field_violations(field_problems)]
        )
    return dict(body)


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    contents = [body.get("systemInstruction"), *(body.get("contents") or ())]
    return sum(len(text) for content in contents for text in texts_of(content))


def _check_request(body: dict[str, Any], model: str, limits: GeminiLimits, signatures: Signatures) -> None:
    if limits.strict:
        check_request(body, StrictReport(), limits, model)
        for content in body["contents"]:
            for part in content["parts"]:
                signatures.check_part(part)
    chars = prompt_chars(body)
    # It says "The input token count (N) exceeds the maximum number of tokens allowed (M)."
    if limits.max_chars is not None and chars > limits.max_chars:
        raise GeminiRequestRefused(
            f"The input token count ({chars}) exceeds the maximum number of tokens allowed ({limits.max_chars})."
        )


def _check_model(call: ModelCall, limits: GeminiLimits) -> None:
    # 404: "models/x is not found for API version v1beta, or is not supported for generateContent."
    if limits.models is not None and call.model not in limits.models:
        raise GeminiRequestRefused(
            f"models/{call.model} is not found for API version v1beta, or is not supported for {call.method}.",
            status=404,
        )


MODEL_CALL_PATH: Final = re.compile(r"/v1(?:beta|alpha)?/models/(.+):([A-Za-z]+)")
