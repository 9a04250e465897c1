"""Generates docs/http-api.md: every operation of the gateway's OpenAPI document.

PYTHONPATH=. python tools/http_api_page.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from antiphon.api.routes import openapi_document

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "http-api.md"
HEAD: Final = """# HTTP API

This page lists every operation of the gateway with its parameters, body and errors. `tools/http_api_page.py` generates
it from the OpenAPI document of the gateway, which also has the schema of every body:

```sh
curl http://127.0.0.1:8080/openapi.json
```

If the configuration has [keys](configuration.md#keys), clients send one as `Authorization: Bearer …`, `x-api-key` or
`x-goog-api-key`. Every answer has an `x-request-id`. [Errors](errors.md) describes every error code, and
[dialects](dialects.md) describes the bodies of the other APIs.
"""
# Each section of the page → the beginnings of its paths; the first section that matches has the path.
SECTIONS: Final = {
    "Messages": ("/v1/messages",),
    "Chat Completions": ("/v1/chat", "/v1/completions"),
    "Gemini": ("/v1beta", "/v1/models/{model}:"),
    "Ollama": ("/api/",),
    "VS Code": ("/v1/vscode",),
    "Conversations": ("/v1/conversations",),
    "Responses": ("/v1/responses",),
    "Models, routes and usage": ("/v1/",),
    "Operation": ("/",),
}
ORDER: Final = (
    "Responses",
    "Conversations",
    "Chat Completions",
    "Messages",
    "Gemini",
    "Ollama",
    "VS Code",
    "Models, routes and usage",
    "Operation",
)
Json = dict[str, Any]
Codes = dict[str, list[str]]  # each status → the error codes that it may have


def page() -> str:
    """Returns the text of the page."""
    document: Json = json.loads(openapi_document())
    common = _common_errors(document)
    sections: dict[str, list[str]] = {title: [] for title in ORDER}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            sections[_section_of(path)].append(_operation(method.upper(), path, operation, common, document))
    texts = [f"\n## {title}\n{''.join(operations)}" for title, operations in sections.items() if operations]
    return f"{HEAD}{_errors_of_all(common)}{''.join(texts)}"


def _section_of(path: str) -> str:
    return next(title for title, beginnings in SECTIONS.items() if path.startswith(beginnings))


# Errors


def _common_errors(document: Json) -> Codes:
    """The errors that every operation with a key may have."""
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    tables = [_errors(operation) for operation in operations if operation.get("security") != []]
    return {
        status: [code for code in codes if all(code in table.get(status, ()) for table in tables)]
        for status, codes in tables[0].items()
        if all(status in table for table in tables)
    }


def _errors(operation: Json) -> Codes:
    return {
        status: re.findall(r"`(\w+)`", response["description"])
        for status, response in operation["responses"].items()
        if status != "200"
    }


def _errors_of_all(common: Codes) -> str:
    rows = [f"| {status} | {_code_list(codes)} |" for status, codes in common.items() if codes]
    return "\nErrors of every operation:\n" + _table("status", "codes", rows=rows)


def _code_list(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


# Operations


def _operation(method: str, path: str, operation: Json, common: Codes, document: Json) -> str:
    lines = [f"\n### `{method} {path}`\n", f"{operation['summary']}. {operation.get('description', '')}".strip()]
    if operation.get("parameters"):
        lines.append(_parameters(operation["parameters"]))
    if "requestBody" in operation:
        lines.append(_body(operation["requestBody"]["content"]["application/json"]["schema"], document))
    return "\n".join([*lines, _answer(operation["responses"]["200"]), *_further_errors(operation, common), ""])


def _parameters(parameters: list[Json]) -> str:
    rows = [
        f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {_cell(each['description'])} |"
        for each in parameters
    ]
    return _table("parameter", "in", "value", "meaning", rows=rows).rstrip("\n")


def _body(schema: Json, document: Json) -> str:
    """The fields of the body; bodies of other APIs have no fields in the document."""
    name, fields = _resolve(schema, document)
    required = {*fields.get("required", ())}
    rows = [
        f"| `{field}`{' (required)' if field in required else ''} | {_type(value)} |"
        for field, value in fields.get("properties", {}).items()
    ]
    if not rows:
        return "\nThe body is a JSON object of that API."
    title = f", `{name}` in the document" if name else ""
    return f"\nThe body is a JSON object{title}:\n" + _table("field", "value", rows=rows).rstrip("\n")


def _resolve(schema: Json, document: Json) -> tuple[str, Json]:
    reference = schema.get("$ref")
    if reference is None:
        return "", schema
    name: str = reference.rpartition("/")[2]
    return name, document["components"]["schemas"][name]


def _answer(response: Json) -> str:
    types = ", ".join(f"`{media}`" for media in response.get("content", {})) or "no body"
    return f"\n**Answer** ({types}): {' '.join(response['description'].split())}"


def _further_errors(operation: Json, common: Codes) -> list[str]:
    errors = {
        status: [code for code in codes if code not in common.get(status, ())]
        for status, codes in _errors(operation).items()
    }
    listed = [f"{status} {_code_list(codes)}" for status, codes in errors.items() if codes]
    return [f"\n**Further errors**: {'; '.join(listed)}."] if listed else []


def _type(schema: Json) -> str:
    return " or ".join(dict.fromkeys(_types(schema)))


def _types(schema: Json) -> Iterator[str]:
    if "$ref" in schema:
        yield f"`{schema['$ref'].rpartition('/')[2]}`"
    elif "enum" in schema:
        yield ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    elif "const" in schema:
        yield f"`{json.dumps(schema['const'])}`"
    elif members := [member for word in ("anyOf", "oneOf", "allOf") for member in schema.get(word, ())]:
        for member in members:
            yield from _types(member)
    elif schema.get("type") == "array":
        yield f"array of {_type(schema.get('items', {}))}"
    else:
        types = schema.get("type", "any")
        yield from [types] if isinstance(types, str) else types


def _table(*titles: str, rows: list[str]) -> str:
    return "\n".join(["", f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
