"""The operations in client dialects other than the hub's. Their bodies and errors are documented by their vendors."""

from __future__ import annotations

from typing import Final

from antiphon.api.count_tokens import count_tokens
from antiphon.api.documented_errors import (
    COUNT_ERRORS,
    EMBEDDING_ERRORS,
    MESSAGES_TURN_ERRORS,
    MODEL_NAME_ERRORS,
    TURN_ERRORS,
    UNKNOWN_MODEL_ERRORS,
)
from antiphon.api.embeddings import batch_embed_contents, embed_content, embed_ollama, embed_ollama_prompt
from antiphon.api.models import get_model, list_models
from antiphon.api.ollama import show_ollama_model, show_ollama_version
from antiphon.api.operation import (
    LOSSES,
    Answer,
    Endpoint,
    ErrorCodes,
    Operation,
    Parameter,
    Schema,
    json_answer,
    path_parameter,
    schema_ref,
)
from antiphon.api.turn_endpoints import create_dialect_turn
from antiphon.api.vscode import count_editor_tokens, list_editor_models

ALT: Final = Parameter(
    "alt",
    "query",
    "`sse`: the answer is server-sent events. Default: one JSON array, sent in pieces.",
    {"type": "string", "examples": ["sse"]},
)
MODEL: Final = path_parameter("model", "The name of a model, which may contain slashes.")

OLLAMA_API: Final = "Ollama"
EDITOR_API: Final = "VS Code's language models"
OBJECT: Final[Schema] = {"type": "object"}  # a body that the vendor of its dialect documents
TURN_ANSWER: Final = Answer(
    "The answer, or with `stream: true` its events as they happen.",
    {"application/json": OBJECT, "text/event-stream": OBJECT},
    ("Antiphon-Losses",),
)


def _turn(
    path: str,
    id: str,
    api: str,
    description: str,
    answer: Answer,
    parameters: tuple[Parameter, ...] = (LOSSES,),
    errors: ErrorCodes = TURN_ERRORS,
) -> Operation:
    return Operation(
        "POST",
        path,
        create_dialect_turn,
        id=id,
        summary=f"A turn, in the form of {api}",
        description=description,
        parameters=parameters,
        body=OBJECT,
        answer=answer,
        errors=errors,
        has_vendor_errors=True,
    )


def _count(
    path: str,
    id: str,
    api: str,
    member: str,
    endpoint: Endpoint = count_tokens,
    parameters: tuple[Parameter, ...] = (LOSSES,),
) -> Operation:
    """A token count. The answer has the count in `member`."""
    count: Schema = {"type": "object", "properties": {member: {"type": "integer", "minimum": 0}}, "required": [member]}
    return Operation(
        "POST",
        path,
        endpoint,
        id=id,
        summary=f"Count the tokens of a turn, in the form of {api}",
        parameters=parameters,
        body=OBJECT,
        answer=json_answer("The number of tokens.", count, "Antiphon-Losses", "Antiphon-Estimated"),
        errors=COUNT_ERRORS,
        has_vendor_errors=True,
    )


def _embeddings(
    path: str, id: str, api: str, endpoint: Endpoint, parameters: tuple[Parameter, ...] = (LOSSES,)
) -> Operation:
    return Operation(
        "POST",
        path,
        endpoint,
        id=id,
        summary=f"Create embeddings, in the form of {api}",
        parameters=parameters,
        body=OBJECT,
        answer=json_answer("The vectors.", OBJECT, "Antiphon-Losses", "Antiphon-Estimated"),
        errors=EMBEDDING_ERRORS,
        has_vendor_errors=True,
    )


def _model_list(path: str, id: str, api: str, endpoint: Endpoint) -> Operation:
    return Operation(
        "GET",
        path,
        endpoint,
        id=id,
        summary=f"List the available models, in the form of {api}",
        answer=json_answer("The models.", OBJECT),
        has_vendor_errors=True,
    )


def _model_operations(prefix: str, get_id: str, id_suffix: str) -> tuple[Operation, ...]:
    """The operations of paths with a model and an optional action, in one version of the Gemini API."""
    path = f"{prefix}{{model}}"
    return (
        Operation(
            "GET",
            path,
            get_model,
            id=get_id,
            summary="Get one available model",
            parameters=(MODEL,),
            answer=json_answer("The model, in the form of the client's API.", {"anyOf": [schema_ref("Model"), OBJECT]}),
            errors=UNKNOWN_MODEL_ERRORS,
            has_vendor_errors=True,
        ),
        _turn(
            f"{path}:generateContent",
            f"generateContent{id_suffix}",
            "Gemini",
            "Without streaming.",
            json_answer("The answer.", OBJECT, "Antiphon-Losses"),
            parameters=(MODEL, LOSSES),
        ),
        _turn(
            f"{path}:streamGenerateContent",
            f"streamGenerateContent{id_suffix}",
            "Gemini",
            "With streaming.",
            Answer(
                "The answer.",
                {"text/event-stream": OBJECT, "application/json": {"type": "array"}},
                ("Antiphon-Losses",),
            ),
            parameters=(MODEL, LOSSES, ALT),
        ),
        _count(f"{path}:countTokens", f"countTokens{id_suffix}", "Gemini", "totalTokens", parameters=(MODEL, LOSSES)),
        _embeddings(f"{path}:embedContent", f"embedContent{id_suffix}", "Gemini", embed_content, (MODEL, LOSSES)),
        _embeddings(
            f"{path}:batchEmbedContents",
            f"batchEmbedContents{id_suffix}",
            "Gemini",
            batch_embed_contents,
            (MODEL, LOSSES),
        ),
    )


OLLAMA_ANSWER: Final = Answer(
    "The answer, one line for each piece, or with `stream: false` one JSON object.",
    {"application/x-ndjson": OBJECT, "application/json": OBJECT},
    ("Antiphon-Losses",),
)
OLLAMA_OPERATIONS: Final = (
    _turn(
        "/api/chat",
        "createOllamaChat",
        OLLAMA_API,
        "A turn in the format of Ollama: a stream unless `stream` is false. Models are not loaded or unloaded.",
        OLLAMA_ANSWER,
    ),
    _turn(
        "/api/generate",
        "createOllamaCompletion",
        OLLAMA_API,
        "A turn of one prompt in the format of Ollama. `suffix`, `raw`, `context` and `template` are refused.",
        OLLAMA_ANSWER,
    ),
    _embeddings("/api/embed", "createOllamaEmbeddings", OLLAMA_API, embed_ollama),
    _embeddings("/api/embeddings", "createOllamaEmbedding", OLLAMA_API, embed_ollama_prompt),
    _model_list("/api/tags", "listOllamaModels", OLLAMA_API, list_models),
    Operation(
        "POST",
        "/api/show",
        show_ollama_model,
        id="showOllamaModel",
        summary=f"Get one available model, in the form of {OLLAMA_API}",
        body=OBJECT,
        answer=json_answer("The model.", OBJECT),
        errors=MODEL_NAME_ERRORS,
        has_vendor_errors=True,
    ),
    Operation(
        "GET",
        "/api/version",
        show_ollama_version,
        id="getOllamaVersion",
        summary=f"Get the version of the gateway, in the form of {OLLAMA_API}",
        answer=json_answer("The version.", OBJECT),
        has_vendor_errors=True,
    ),
)
DIALECT_OPERATIONS: Final = (
    _turn(
        "/v1/chat/completions",
        "createChatCompletion",
        "Chat Completions",
        "A turn in the format of Chat Completions. It is stored only if `store` is true.",
        TURN_ANSWER,
    ),
    _turn(
        "/v1/messages",
        "createMessage",
        "Messages",
        "A turn in the format of Messages. Beta headers are forwarded only to servers of this API.",
        TURN_ANSWER,
        errors=MESSAGES_TURN_ERRORS,
    ),
    _count("/v1/messages/count_tokens", "countMessageTokens", "Messages", "input_tokens"),
    _turn(
        "/v1/vscode/chat",
        "createEditorTurn",
        EDITOR_API,
        "Takes the messages and options of the editor and returns response parts: a stream unless `stream` is false.",
        Answer(
            "The response parts, one line each as they are created, or with `stream: false` one JSON object.",
            {"application/x-ndjson": OBJECT, "application/json": OBJECT},
            ("Antiphon-Losses",),
        ),
    ),
    _count("/v1/vscode/count_tokens", "countEditorTokens", EDITOR_API, "count", count_editor_tokens),
    _model_list("/v1/vscode/models", "listEditorModels", EDITOR_API, list_editor_models),
    *OLLAMA_OPERATIONS,
    _model_list("/v1beta/models", "listGeminiModels", "Gemini", list_models),
    *_model_operations("/v1/models/", "getModel", "V1"),
    *_model_operations("/v1beta/models/", "getGeminiModel", ""),
)
