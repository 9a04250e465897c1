"""What strict chat and responses servers refuse in the same way: keys, unknown models, prompts that are too long.

`antiphon.rules` has the rules for the body itself; `StrictReport` refuses a request at their first violation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.codec import decode_json
from antiphon.rules import Report, Violation, settings
from antiphon.testing.completions import complete_text
from antiphon.testing.embeddings import embed_texts
from antiphon.testing.script import PlainReply, ReceivedRequest, error, whole


class RequestRefused(Exception):
    """A real server would refuse the request."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.reply: PlainReply = error(status, message, code=code, param=param)


class StrictReport(Report):
    """Refuses a request at the first violation, in the form of chat and responses servers."""

    def receive(self, violation: Violation) -> None:
        raise RequestRefused(violation.message, param=violation.param, code=violation.code)


class ServerLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server: its key, its models, the length of prompts, and whether unknown fields are errors."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    strict: bool = True
    strict_fields: bool = False
    #: Whether requests in a tool loop must include the server's own reasoning.
    wants_reasoning: bool = False
    #: Types of hosted tools that the server accepts besides functions and custom tools.
    own_tools: tuple[str, ...] = ()
    #: The maker that seals the server's reasoning; reasoning sealed by another maker is refused.
    maker: str = "fake"
    #: Names of models that do not reason, besides those with well-known names.
    plain_models: tuple[str, ...] = ()


def answer_other_path(request: ReceivedRequest, turn_path: str, limits: ServerLimits) -> PlainReply | None:
    """Answer requests to paths other than `turns`: the list of models, embeddings, text completions, or an error for an
    unknown path."""
    path = request.path.partition("?")[0]
    models = limits.models or ("mock-1",)
    if (request.method, path) == ("POST", turn_path):
        return None
    if request.method == "POST" and path in OTHER_OPERATIONS:
        return _answer_operation(request, path, limits)
    if (request.method, path) == ("GET", "/v1/models"):
        model_entries = [{"id": name, "object": "model", "created": 0, "owned_by": "fake"} for name in models]
        return whole({"object": "list", "data": model_entries})
    if path in (turn_path, "/v1/models"):
        return error(405, f"{request.method} is not allowed on {path}", code="method_not_allowed")
    return error(404, f"there is no {request.method} {path} here", code="unknown_url")


def _answer_operation(request: ReceivedRequest, path: str, limits: ServerLimits) -> PlainReply:
    try:
        check_key(request, limits)
        body = json_object(request)
        check_model(body, limits)
    except RequestRefused as refusal:
        return refusal.reply
    return OTHER_OPERATIONS[path](body)


def json_object(request: ReceivedRequest) -> dict[str, Any]:
    """Return the body, which must have a JSON content type and be an object."""
    # Servers made with frameworks answer 415 or 400 if the content type is not JSON, such as form data.
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestRefused(
            f"the content type is {content_type or 'missing'}, not application/json",
            code="unsupported_media_type",
            status=415,
        )
    body = request.json
    # Every provider: a body that cannot be parsed is a 400.
    if not isinstance(body, dict):
        raise RequestRefused("the body is no JSON object", code="invalid_json")
    return body


def check_key(request: ReceivedRequest, limits: ServerLimits) -> None:
    # Every provider: 401 for a key that is missing or wrong, the same code for both.
    if limits.key is not None and request.headers.get("authorization") != f"Bearer {limits.key}":
        raise RequestRefused("incorrect API key provided", code="invalid_api_key", status=401)


def check_model(body: dict[str, Any], limits: ServerLimits) -> None:
    settings.check_model(body, StrictReport())
    # Every provider: a model that is not served is a 404 of its own code.
    model = body["model"]
    if limits.models is not None and model not in limits.models:
        raise RequestRefused(f"the model {model!r} does not exist", param="model", code="model_not_found", status=404)


def check_length(chars: int, limits: ServerLimits, param: str) -> None:
    # Every provider: a prompt beyond the context window is a 400, never cut in silence.
    if limits.max_chars is not None and chars > limits.max_chars:
        raise RequestRefused(
            f"this model's maximum context length is {limits.max_chars} characters, the request has {chars}",
            param=param,
            code="context_length_exceeded",
        )


def parse_json(arguments: str) -> Any:
    try:
        return decode_json(arguments)
    except msgspec.DecodeError:
        return None


OTHER_OPERATIONS: Final[dict[str, Callable[[dict[str, Any]], PlainReply]]] = {
    "/v1/embeddings": embed_texts,
    "/v1/completions": complete_text,
}
