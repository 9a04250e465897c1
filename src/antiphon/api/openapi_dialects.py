"""The OpenAPI paths of other dialects: their headers, parameters and answers. Their bodies are documented by their
vendors."""

from __future__ import annotations

from typing import Final

from antiphon.api.openapi_errors import AUTHENTICATION_ERRORS, COMMON_ERRORS, CREATE_ERRORS, TITLES, ErrorCodes
from antiphon.api.openapi_parts import (
    Schema,
    header_parameter,
    header_refs,
    json_response,
    path_parameter,
    query_parameter,
    ref,
)


def dialect_paths() -> dict[str, dict[str, Schema]]:
    """All paths of other dialects."""
    paths: dict[str, dict[str, Schema]] = {
        "/v1/chat/completions": {"post": _turn("createChatCompletion", "Chat Completions", CHAT)},
        "/v1/messages": {"post": _turn("createMessage", "Messages", MESSAGES, overloaded="529")},
        "/v1/messages/count_tokens": {"post": _count("countMessageTokens", "Messages", "input_tokens")},
        "/v1/vscode/chat": {"post": _editor_turn()},
        "/v1/vscode/count_tokens": {"post": _count("countEditorTokens", "VS Code's language models", "count")},
        "/v1/vscode/models": {"get": _models("listEditorModels", "VS Code's language models")},
        "/v1/models/{model}": {"get": _model("getModel")},
        "/v1beta/models": {"get": _models("listGeminiModels", "Gemini")},
        "/v1beta/models/{model}": {"get": _model("getGeminiModel")},
    }
    for version, name in (("v1", "V1"), ("v1beta", "")):
        model_path = f"/{version}/models/{{model}}"
        paths[f"{model_path}:generateContent"] = {
            "post": _generate(f"generateContent{name}", "Without streaming.", JSON)
        }
        paths[f"{model_path}:streamGenerateContent"] = {
            "post": _generate(f"streamGenerateContent{name}", STREAMED, STREAM)
        }
        paths[f"{model_path}:countTokens"] = {
            "post": _with_model(_count(f"countTokens{name}", "Gemini", "totalTokens"))
        }
    return paths


def _turn(id: str, api: str, description: str, overloaded: str = "503") -> Schema:
    return {
        "operationId": id,
        "summary": f"A turn, in the form of {api}",
        "description": description,
        "parameters": [LOSSES],
        "requestBody": BODY,
        "responses": {
            "200": {
                "description": "The answer, or with `stream: true` its events as they happen.",
                "headers": header_refs("x-request-id", "Antiphon-Losses"),
                "content": {"application/json": {"schema": OBJECT}, "text/event-stream": {"schema": OBJECT}},
            },
            **_errors(CREATE_ERRORS, overloaded=overloaded),
        },
    }


def _generate(id: str, description: str, content: dict[str, Schema]) -> Schema:
    operation = _turn(id, "Gemini", description)
    operation["responses"]["200"] |= {"description": "The answer.", "content": content}
    if content is STREAM:
        alt = "`sse`: the answer is server-sent events. Default: one JSON array, sent in pieces."
        operation["parameters"] = [LOSSES, query_parameter("alt", alt, {"type": "string", "examples": ["sse"]})]
    return _with_model(operation)


def _count(id: str, api: str, name: str) -> Schema:
    counted = {"type": "object", "properties": {name: {"type": "integer", "minimum": 0}}, "required": [name]}
    return {
        "operationId": id,
        "summary": f"Count the tokens of a turn, in the form of {api}",
        "parameters": [LOSSES],
        "requestBody": BODY,
        "responses": {
            "200": {
                "description": "The number of tokens.",
                "headers": header_refs("x-request-id", "Antiphon-Losses", "Antiphon-Estimated"),
                "content": {"application/json": {"schema": counted}},
            },
            **_errors({status: CREATE_ERRORS[status] for status in (400, 404, 413, 415)}),
        },
    }


def _editor_turn() -> Schema:
    operation = _turn("createEditorTurn", "VS Code's language models", EDITOR)
    operation["responses"]["200"] |= {
        "description": "The response parts, one line each as they are created, or with `stream: false` one JSON object."
    }
    operation["responses"]["200"] |= {"content": {"application/x-ndjson": {"schema": OBJECT}, **JSON}}
    return operation


def _models(id: str, api: str) -> Schema:
    return {
        "operationId": id,
        "summary": f"List the available models, in the form of {api}",
        "responses": {"200": json_response("The models.", OBJECT), **_errors()},
    }


def _model(id: str) -> Schema:
    operation: Schema = {
        "operationId": id,
        "summary": "Get one available model",
        "responses": {
            "200": json_response("The model, in the form of the client's API.", {"anyOf": [ref("Model"), OBJECT]}),
            **_errors({404: CREATE_ERRORS[404]}),
        },
    }
    return _with_model(operation)


def _with_model(operation: Schema) -> Schema:
    return operation | {"parameters": [MODEL, *operation.get("parameters", [])]}


def _errors(*tables: ErrorCodes, overloaded: str = "503") -> dict[str, Schema]:
    """The errors of all endpoints, in the format of that API."""
    codes: dict[str, list[str]] = {}
    for table in (COMMON_ERRORS, AUTHENTICATION_ERRORS, *tables):
        for status, messages in table.items():
            for code in messages:
                codes.setdefault(overloaded if code == "overloaded" else str(status), []).append(code)
    return {
        status: {
            "description": f"{TITLES[503 if status == '529' else int(status)]}: "
            + ", ".join(f"`{code}`" for code in dict.fromkeys(status_codes)),
            "headers": header_refs("x-request-id"),
            "content": {"application/json": {"schema": ERROR}},
        }
        for status, status_codes in sorted(codes.items())
    }


CHAT: Final = "A turn in the format of Chat Completions. It is stored only if `store` is true."
MESSAGES: Final = "A turn in the format of Messages. Beta headers are forwarded only to servers of this API."
EDITOR: Final = (
    "Takes the messages and options of the editor and returns response parts: a stream unless `stream` is false."
)
STREAMED: Final = "With streaming."
OBJECT: Final[Schema] = {"type": "object"}
ERROR: Final[Schema] = {"type": "object", "properties": {"error": {"type": "object"}}, "required": ["error"]}
BODY: Final[Schema] = {"required": True, "content": {"application/json": {"schema": OBJECT}}}
JSON: Final[dict[str, Schema]] = {"application/json": {"schema": OBJECT}}
STREAM: Final[dict[str, Schema]] = {
    "text/event-stream": {"schema": OBJECT},
    "application/json": {"schema": {"type": "array"}},
}
STRICT: Final = "`strict` refuses a turn that cannot be translated without loss; `warn` reports the losses."
LOSSES: Final = header_parameter("Antiphon-Losses", STRICT, {"enum": ["warn", "strict"]})
MODEL: Final = path_parameter("model", "The name of a model, which may contain slashes.")
