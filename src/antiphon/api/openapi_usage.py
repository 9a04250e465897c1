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
        "summary": "Get the usage",
        "description": "The sums of requests, tokens, errors and losses of the owner of the key. Days are in UTC.",
        "parameters": [
            query_parameter("by", "The grouping of the sums.", {"enum": list(GROUPINGS), "default": "model"}),
            query_parameter("since", "The first day. Default: 30 days up to `until`.", DAY),
            query_parameter("until", "The last day. Default: today.", DAY),
        ],
        "responses": {
            "200": json_response("The usage.", _list()),
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
    404: {"not_found": "this gateway stores nothing"},
    503: {"storage_unavailable": "the usage cannot be read from the store"},
}
