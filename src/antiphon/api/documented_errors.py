"""The errors that routes document: the codes of each status, with an example message for each."""

from __future__ import annotations

from typing import Final

from antiphon.api.operation import ErrorCodes

# The errors of every endpoint; a public one has no authentication errors.
COMMON_ERRORS: Final[ErrorCodes] = {
    400: {"invalid_value": 'temperature: expected a number, got "hot"'},
    403: {
        "forbidden_host": "the Host header names a host that this gateway does not serve",
        "forbidden_origin": "requests from this origin are not allowed",
    },
    405: {"method_not_allowed": "method not allowed; this path supports GET"},
    408: {"request_timeout": "the whole body was not received within 300 s"},
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
TURN_ERRORS: Final[dict[int, dict[str, str]]] = {
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
    429: {"rate_limit_exceeded": "too many open turns of this key, or the upstream's rate limit is reached"},
    502: {
        "upstream_unavailable": "the upstream cannot be reached",
        "upstream_invalid_response": "the upstream violated its protocol",
        "upstream_disconnected": "the upstream closed the connection before the end of its answer",
        "upstream_auth_failed": "the upstream refused the gateway's credentials",
        "upstream_credentials_exhausted": "the upstreams refused all 2 keys of the gateway",
        "model_refusal": "the model refused to answer",
        "upstream_error": "the upstream failed with status 500",
    },
    503: {"overloaded": "the gateway or the upstream is overloaded", **STORAGE_ERRORS},
    504: {"upstream_timeout": "the upstream took too long"},
}
# For endpoints that store a body and call no upstream.
BODY_ERRORS: Final[ErrorCodes] = {
    400: {
        code: TURN_ERRORS[400][code] for code in ("invalid_json", "json_too_deep", "invalid_unicode", "missing_field")
    },
    413: TURN_ERRORS[413],
    415: TURN_ERRORS[415],
}
# For endpoints that prepare a turn and do not run it.
COUNT_ERRORS: Final[ErrorCodes] = {status: TURN_ERRORS[status] for status in (400, 404, 413, 415, 429, 503)}
# For requests that are no turns. Nothing of them is stored.
EMBEDDING_ERRORS: Final[ErrorCodes] = {
    **TURN_ERRORS,
    400: {
        code: TURN_ERRORS[400][code]
        for code in (
            "invalid_json",
            "json_too_deep",
            "invalid_unicode",
            "missing_field",
            "unsupported_parameter",
            "context_length_exceeded",
            "lossy_translation",
        )
    },
    404: {**TURN_ERRORS[404], "not_supported": "the upstream 'lab' has no embeddings: its API is Messages"},
    503: {"overloaded": TURN_ERRORS[503]["overloaded"]},
}
COMPLETION_ERRORS: Final[ErrorCodes] = {
    **EMBEDDING_ERRORS,
    404: {**TURN_ERRORS[404], "not_supported": "the upstream 'lab' has no text completions: its API is Gemini"},
}
# The Messages API has its own status for an overloaded server.
MESSAGES_TURN_ERRORS: Final[ErrorCodes] = {
    **TURN_ERRORS,
    503: STORAGE_ERRORS,
    529: {"overloaded": TURN_ERRORS[503]["overloaded"]},
}
UNKNOWN_MODEL_ERRORS: Final[ErrorCodes] = {404: TURN_ERRORS[404]}
MODEL_NAME_ERRORS: Final[ErrorCodes] = {**BODY_ERRORS, **UNKNOWN_MODEL_ERRORS}
READINESS_ERRORS: Final[ErrorCodes] = {503: {"not_ready": "not ready: the gateway is shutting down"}}
USAGE_ERRORS: Final[ErrorCodes] = {
    404: {"not_found": "this gateway stores nothing"},
    503: {"storage_unavailable": "the usage cannot be read from the store"},
}
