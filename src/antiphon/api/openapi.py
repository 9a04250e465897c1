"""The OpenAPI document of the gateway, generated from the route table and the types that the server reads and writes.

Unknown fields are allowed everywhere, and unions accept objects of unknown types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.api.documented_errors import AUTHENTICATION_ERRORS, COMMON_ERRORS
from antiphon.api.openapi_schemas import public_name, schemas_of
from antiphon.api.operation import BodyType, ErrorCodes, Operation, Parameter, Route, Schema, schema_ref
from antiphon.dialects.registry import DIALECTS, SERVER_DIALECT_NAMES
from antiphon.errors import STATUS_OF_TYPE
from antiphon.gateway.model_catalog import Model
from antiphon.protocol.errors import ErrorBody
from antiphon.protocol.losses import Loss


def render_document(routes: Mapping[str, Route]) -> bytes:
    """The document that `GET /openapi.json` returns."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Antiphon", "version": __version__, "description": DESCRIPTION},
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}, {"apiKey": []}],
            "paths": {
                path: {method.lower(): _operation(route, operation) for method, operation in route.operations.items()}
                for path, route in routes.items()
            },
            "components": {
                "schemas": schemas_of({*_body_structs(routes.values()), ErrorBody, Loss, Model}),
                "headers": HEADERS,
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer", "description": KEYS},
                    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": KEYS},
                },
            },
        }
    )


def _body_structs(routes: Iterable[Route]) -> set[type[Struct]]:
    """The types of all bodies that have a type."""
    operations = [operation for route in routes for operation in route.operations.values()]
    bodies = [body for operation in operations for body in (operation.body, *operation.answer.content.values())]
    return {body for body in bodies if isinstance(body, type)}


def _operation(route: Route, operation: Operation) -> Schema:
    rendered: Schema = {"operationId": operation.id, "summary": operation.summary}
    if operation.description:
        rendered["description"] = operation.description
    if route.is_public:
        rendered["security"] = []
    if operation.parameters:
        rendered["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        rendered["requestBody"] = {"required": True, "content": _content({"application/json": operation.body})}
    answer = {
        "description": operation.answer.description,
        "headers": _header_refs(*operation.answer.headers),
        "content": _content(operation.answer.content),
    }
    rendered["responses"] = {"200": answer, **_error_responses(route, operation)}
    return rendered


def _parameter(parameter: Parameter) -> Schema:
    return {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.location == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _content(content: Mapping[str, BodyType]) -> Schema:
    return {
        media_type: {"schema": schema_ref(public_name(body.__name__)) if isinstance(body, type) else body}
        for media_type, body in content.items()
    }


def _header_refs(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *names)}


# Errors


def _error_responses(route: Route, operation: Operation) -> dict[str, Schema]:
    tables: list[ErrorCodes] = [COMMON_ERRORS, {} if route.is_public else AUTHENTICATION_ERRORS, operation.errors]
    codes: dict[int, dict[str, str]] = {}
    for table in tables:
        for status, messages in table.items():
            codes[status] = codes.get(status, {}) | dict(messages)
    return {
        str(status): {
            "description": f"{STATUS_TITLES[status]}: " + ", ".join(f"`{code}`" for code in codes[status]),
            "headers": _header_refs(*HEADERS_OF_STATUS.get(status, ())),
            "content": {"application/json": _error_body(operation, status, codes[status])},
        }
        for status in sorted(codes)
    }


def _error_body(operation: Operation, status: int, codes: Mapping[str, str]) -> Schema:
    """The schema of the error, with an example of every code if the error has the form of the hub."""
    if operation.has_vendor_errors:
        return {"schema": VENDOR_ERROR}
    examples = {
        code: {
            "value": {
                "error": {
                    "type": _error_type(status),
                    "code": code,
                    "message": message,
                    "param": EXAMPLE_PARAMS.get(code),
                }
            }
        }
        for code, message in codes.items()
    }
    return {"schema": schema_ref("ErrorBody"), "examples": examples}


def _error_type(status: int) -> str:
    types = {number: type for type, number in STATUS_OF_TYPE.items() if type != "model_error"}
    return types.get(status, "invalid_request" if status < 500 else "server_error")


DESCRIPTION: Final = (
    f"A gateway with these APIs: {', '.join(DIALECTS[name].title for name in SERVER_DIALECT_NAMES)}; for upstream"
    " servers of any of these dialects. Every answer has an `x-request-id`; every answer that is not 2xx is a JSON"
    " error."
)
KEYS: Final = "A key from the gateway's configuration. If none is configured, no key is needed."
VENDOR_ERROR: Final[Schema] = {
    "type": "object",
    "properties": {"error": {"type": ["object", "string"]}},
    "required": ["error"],
}
HEADERS: Final[dict[str, Schema]] = {
    "x-request-id": {"description": "The id of the request in the log of the gateway.", "schema": {"type": "string"}},
    "Antiphon-Losses": {
        "description": "The number of losses in translation, and their paths: `2; tools[0], input[3]`.",
        "schema": {"type": "string"},
    },
    "Antiphon-Estimated": {"description": "The count is an estimate.", "schema": {"const": "true"}},
    "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"description": "The methods of the path.", "schema": {"type": "string"}},
    "Upgrade": {"description": "The protocol to use instead.", "schema": {"type": "string"}},
}
HEADERS_OF_STATUS: Final[dict[int, tuple[str, ...]]] = {
    405: ("Allow",),
    426: ("Upgrade",),
    429: ("Retry-After",),
    503: ("Retry-After",),
    529: ("Retry-After",),
}
STATUS_TITLES: Final[dict[int, str]] = {
    400: "Invalid request",
    401: "Missing or invalid key",
    403: "Host or origin not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request not received in time",
    413: "Request too large",
    415: "Unsupported media type",
    426: "Upgrade required",
    429: "Too many requests",
    431: "Headers too large",
    500: "Fault of the gateway or of the model",
    502: "Fault of the upstream server",
    503: "Temporarily unavailable",
    504: "Timeout of the upstream server",
    529: "Temporarily unavailable",
}
EXAMPLE_PARAMS: Final = {
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
