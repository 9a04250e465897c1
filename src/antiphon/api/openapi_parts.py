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
        query_parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        query_parameter("order", "The newest first, or the oldest.", {"enum": ["asc", "desc"], "default": "desc"}),
        query_parameter("after", "The id of the item that the page begins behind.", {"type": "string"}),
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


INCLUDE: Final = "What is shown only to who asks for it, such as `reasoning.encrypted_content`."
HEADERS: Final[dict[str, Schema]] = {
    "x-request-id": {"description": "By which the gateway's log knows the request.", "schema": {"type": "string"}},
    "Antiphon-Losses": {
        "description": "How much could not be carried to the server behind, "
        "and where it stood: `2; tools[0], input[3]`.",
        "schema": {"type": "string"},
    },
    "Antiphon-Estimated": {"description": "The server behind does not count.", "schema": {"const": "true"}},
    "Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"description": "The methods that the path answers.", "schema": {"type": "string"}},
    "Upgrade": {"description": "What to speak instead.", "schema": {"type": "string"}},
}
