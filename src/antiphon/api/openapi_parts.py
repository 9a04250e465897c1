"""Builds the parts of OpenAPI operations: references, bodies, parameters, headers."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def json_response(description: str, schema: Schema) -> Schema:
    return {
        "description": description,
        "headers": header_refs("x-request-id"),
        "content": {"application/json": {"schema": schema}},
    }


def json_body(name: str) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": ref(name)}}}


def item_page() -> Schema:
    """The schema of a page of items."""
    return {
        "type": "object",
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": ref("ItemParam")},
            "first_id": {"type": ["string", "null"]},
            "last_id": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
        "required": ["object", "data", "first_id", "last_id", "has_more"],
    }


def paging_parameters() -> list[Schema]:
    return [
        query_parameter(
            "limit", "The maximum number of items.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
        ),
        query_parameter(
            "order",
            "The order: newest first (`desc`) or oldest first (`asc`).",
            {"enum": ["asc", "desc"], "default": "desc"},
        ),
        query_parameter("after", "The id of the item before the page.", {"type": "string"}),
        include_parameter(),
    ]


def include_parameter() -> Schema:
    return query_parameter("include", INCLUDE, {"type": "array", "items": {"type": "string"}, "maxItems": 20})


def path_parameter(name: str, description: str) -> Schema:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def header_refs(*names: str) -> dict[str, Schema]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def header_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


INCLUDE: Final = "Fields that are included only on request, such as `reasoning.encrypted_content`."
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
