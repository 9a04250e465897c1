"""The error answers of the OpenAPI document: the codes of each status, with an example message for each."""

from __future__ import annotations

from typing import Final

from antiphon.api.openapi_parts import Schema, header_refs, ref
from antiphon.errors import STATUS_OF_TYPE

ErrorCodes = dict[int, dict[str, str]]  # an example message by status and code


def error_responses(*tables: ErrorCodes) -> dict[str, Schema]:
    """The error answers, with an example of every code."""
    codes: ErrorCodes = {}
    for table in tables:
        for status, messages in table.items():
            codes[status] = codes.get(status, {}) | messages
    return {str(status): _error(status, codes[status]) for status in sorted(codes)}


def _error(status: int, codes: dict[str, str]) -> Schema:
    examples = {
        code: {
            "value": {
                "error": {"type": _type_of(status, code), "code": code, "message": message, "param": PARAMS.get(code)}
            }
        }
        for code, message in codes.items()
    }
    return {
        "description": f"{TITLES[status]}: " + ", ".join(f"`{code}`" for code in codes),
        "headers": header_refs("x-request-id", *HEADERS_OF_STATUS.get(status, ())),
        "content": {"application/json": {"schema": ref("ErrorBody"), "examples": examples}},
    }


def _type_of(status: int, code: str) -> str:
    if code in MODEL_ERRORS:
        return "model_error"
    types = {number: type for type, number in STATUS_OF_TYPE.items() if type != "model_error"}
    return types.get(status, "invalid_request" if status < 500 else "server_error")


HEADERS_OF_STATUS: Final[dict[int, tuple[str, ...]]] = {
    405: ("Allow",),
    426: ("Upgrade",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
TITLES: Final[dict[int, str]] = {
    400: "Invalid request",
    401: "Missing or invalid key",
    403: "Host or origin not allowed",
    404: "Not found",
    405: "Method not allowed",
    413: "Request too large",
    415: "Unsupported media type",
    426: "Upgrade required",
    429: "Too many requests",
    431: "Headers too large",
    500: "Fault of the gateway or of the model",
    502: "Fault of the upstream server",
    503: "Temporarily unavailable",
    504: "Timeout of the upstream server",
}
PARAMS: Final = {
    "invalid_value": "temperature",
    "missing_field": "input[0].content",
    "unsupported_parameter": "background",
    "context_length_exceeded": "input",
    "previous_response_not_found": "previous_response_id",
    "orphan_tool_output": "input[2].call_id",
    "invalid_compaction": "input[0].encrypted_content",
    "model_not_found": "model",
    "lossy_translation": "tools[0]",
}
# The codes of each status, with an example message.
COMMON_ERRORS: Final[ErrorCodes] = {
    400: {"invalid_value": 'temperature: expected a number, got "hot"'},
    403: {
        "forbidden_host": "the Host header names a host that this gateway does not serve",
        "forbidden_origin": "requests from this origin are not allowed",
    },
    405: {"method_not_allowed": "method not allowed; this path supports GET"},
    426: {"upgrade_required": "WebSockets are disabled: send the request with POST"},
    431: {"headers_too_large": "the headers are too large"},
    500: {"internal_error": "internal error; see the log for request id req_0123"},
    503: {"server_shutdown": "the server is shutting down"},
}
AUTHENTICATION_ERRORS: Final[ErrorCodes] = {401: {"invalid_api_key": "missing or invalid key"}}
STORAGE_ERRORS: Final = {"storage_unavailable": "the response could not be stored"}
STORED_RESPONSE_ERRORS: Final[ErrorCodes] = {
    404: {"not_found": "no response with this id is stored here"},
    503: STORAGE_ERRORS,
}
CONVERSATION_ERRORS: Final[ErrorCodes] = {
    404: {"not_found": "no conversation with this id is stored here"},
    503: STORAGE_ERRORS,
}
MODEL_ERRORS: Final = {"tool_not_allowed": "the model called a tool that was not allowed"}
CREATE_ERRORS: Final[ErrorCodes] = {
    400: {
        "invalid_json": "the body is not valid JSON: it breaks off after 17 bytes",
        "json_too_deep": "the body is nested too deeply",
        "invalid_unicode": "the body is not valid UTF-8",
        "missing_field": "input[0].content: it is missing",
        "unsupported_parameter": "background: expected false, because store is false; "
        "a background response must be stored",
        "context_length_exceeded": "the input is longer than the model's context, "
        "or refers to more than this gateway resolves",
        "previous_response_not_found": "no response with this id is stored here",
        "orphan_tool_output": "input[2].call_id: no call before it has this id",
        "invalid_compaction": "input[0].encrypted_content: this compaction cannot be used",
        "lossy_translation": "strict mode: the request cannot be translated without loss: tools[0]: a hosted tool",
    },
    404: {"model_not_found": "no upstream serves this model", "not_found": "the upstream answered 404"},
    413: {"request_too_large": "the body is larger than the limit"},
    415: {"unsupported_media_type": "content-type: expected 'application/json', got 'text/plain'"},
    429: {"rate_limit_exceeded": "the upstream's rate limit is reached"},
    500: MODEL_ERRORS,
    502: {
        "upstream_unavailable": "the upstream cannot be reached",
        "upstream_invalid_response": "the upstream violated its protocol",
        "upstream_disconnected": "the upstream closed the connection before the end of its answer",
        "upstream_auth_failed": "the upstream refused the gateway's credentials",
        "upstream_error": "the upstream failed with status 500",
    },
    503: {"overloaded": "the upstream is overloaded", **STORAGE_ERRORS},
    504: {"upstream_timeout": "the upstream took too long"},
}
# For endpoints that store a body and call no upstream.
BODY_ERRORS: Final[ErrorCodes] = {
    400: {
        code: CREATE_ERRORS[400][code] for code in ("invalid_json", "json_too_deep", "invalid_unicode", "missing_field")
    },
    413: CREATE_ERRORS[413],
    415: CREATE_ERRORS[415],
}
