"""The OpenAPI operation of `GET /v1/usage`."""

from __future__ import annotations

from typing import Final

from antiphon.api.openapi_errors import AUTHENTICATION_ERRORS, COMMON_ERRORS, ErrorCodes, error_responses
from antiphon.api.openapi_parts import Schema, json_response, query_parameter
from antiphon.store.usage import COUNTER_NAMES
from antiphon.store.usage_sums import GROUPINGS


def usage_operation() -> Schema:
    return {
        "operationId": "getUsage",
        "summary": "What was used",
        "description": "Requests, tokens, errors and losses of the key's own owner, added up. Days are those of UTC.",
        "parameters": [
            query_parameter("by", "What is added up together.", {"enum": list(GROUPINGS), "default": "model"}),
            query_parameter("since", "The first day; without it, 30 days up to the last.", DAY),
            query_parameter("until", "The last day; without it, today.", DAY),
        ],
        "responses": {
            "200": json_response("What was used.", _list()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, ABSENT),
        },
    }


def _list() -> Schema:
    names = {by: {"type": "string"} for by in GROUPINGS}
    counts = {name: {"type": "integer", "minimum": 0} for name in COUNTER_NAMES}
    entry = {
        "type": "object",
        "properties": {"object": {"const": "usage"}, **names, **counts},
        "required": ["object", *counts],
    }
    return {
        "type": "object",
        "properties": {
            "object": {"const": "list"},
            "by": {"enum": list(GROUPINGS)},
            "since": DAY,
            "until": DAY,
            "data": {"type": "array", "items": entry},
        },
        "required": ["object", "by", "since", "until", "data"],
    }


DAY: Final[Schema] = {"type": "string", "format": "date"}
ABSENT: Final[ErrorCodes] = {
    404: {"not_found": "this gateway keeps nothing"},
    503: {"storage_unavailable": "what was used cannot be looked up"},
}
