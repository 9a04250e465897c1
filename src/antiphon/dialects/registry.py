"""The registry of dialects: one record each. To add a dialect, add its record here; a test names every other table that
lacks it."""

from __future__ import annotations

from typing import Any, Final, cast, get_args

from antiphon.dialects import agent_log, chat, gemini, messages, ollama, responses, vscode
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.embeddings import TEXT_EMBEDDINGS
from antiphon.dialects.common.server_turn import make_server
from antiphon.dialects.dialect import (
    ClientDialect,
    ClientDialectName,
    Dialect,
    DialectName,
    ServerDialectName,
)
from antiphon.dialects.gemini.embeddings import BATCH_EMBED_CONTENTS, EMBED_CONTENT
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.dialects.ollama.embeddings import EMBED, OLD_EMBEDDINGS
from antiphon.dialects.ollama.wire import OllamaWire
from antiphon.dialects.responses.wire import ResponsesWire

Wire = ChatWire | ResponsesWire | MessagesWire | GeminiWire | OllamaWire


def _client(name: ClientDialectName, package: Any, **facts: Any) -> ClientDialect:
    """The client half of a dialect package. The names are the same in every package; a test checks this."""
    return ClientDialect(
        name=name,
        request_to_hub=package.request_to_hub,
        events_from_hub=package.EventsFromHub,
        response_from_hub=package.response_from_hub,
        error_from_hub=package.error_from_hub,
        **facts,
    )


CHAT: Final = Dialect(
    name="chat",
    title="Chat Completions",
    server=make_server(
        chat,
        turn_path="/chat/completions",
        count_path="/chat/completions/input_tokens",
        embeddings=(TEXT_EMBEDDINGS,),
        completions_path="/completions",
        wire_type=ChatWire,
        own_client_wire={"native_types": True},
        wire_after_refusal=chat.wire_after_refusal,
        default_profile="chat",
        accepts_unsealed_reasoning=True,
        response_only_fields=frozenset({"choices", "error"}),
    ),
    client=_client(
        "chat",
        chat,
        part_types=chat.PART_TYPES,
        turn_paths=("/v1/chat/completions",),
        path_prefixes=("/v1/chat/",),
        answer_content=chat.AnswerContent,
    ),
)
RESPONSES: Final = Dialect(
    name="responses",
    title="Responses",
    server=make_server(
        responses,
        turn_path="/responses",
        count_path="/responses/input_tokens",
        embeddings=(TEXT_EMBEDDINGS,),
        completions_path="/completions",
        count_request=responses.count_request,
        without_settings=responses.without_settings,
        frames_without_settings=responses.frames_without_settings,
        wire_type=ResponsesWire,
        default_profile="open-responses",
        wire_after_refusal=responses.wire_after_refusal,
        is_hub=True,
        accepts_unsealed_reasoning=True,
        opens_foreign_compaction=True,
        has_websocket=True,
        prompt_cache_seconds=1800.0,
        response_only_fields=frozenset({"output", "error"}),
        event_only_fields=frozenset({"sequence_number"}),
    ),
    client=_client(
        "responses",
        responses,
        input_field="input",
        part_types=responses.PART_TYPES | messages.NATIVE_BLOCKS,
        turn_paths=("/v1/responses",),
        path_prefixes=("/v1/responses",),
    ),
)
MESSAGES: Final = Dialect(
    name="messages",
    title="Messages",
    server=make_server(
        messages,
        turn_path="/messages",
        models_path="/models?limit=1000",
        count_path="/messages/count_tokens",
        count_request=messages.count_request,
        wire_type=MessagesWire,
        default_profile="messages",
        wire_after_refusal=messages.wire_after_refusal,
        response_only_fields=frozenset({"content", "error"}),
        event_only_fields=frozenset({"message", "index", "delta"}),
    ),
    client=_client(
        "messages",
        messages,
        part_types=messages.PART_TYPES,
        answer_content=messages.AnswerContent,
        turn_paths=("/v1/messages",),
        path_prefixes=("/v1/messages",),
        continues_answers=True,
        request_id_header=b"request-id",
        model_from_hub=messages.model_from_hub,
        models_from_hub=messages.models_from_hub,
        model_alias_prefix="claude-via-",
        needs_a_tool=True,
        count_field="input_tokens",
    ),
)
GEMINI: Final = Dialect(
    name="gemini",
    title="Gemini",
    server=make_server(
        gemini,
        turn_path="/{model}:generateContent",
        stream_path="/{model}:streamGenerateContent?alt=sse",
        models_path="/models?pageSize=1000",
        base_path="/v1beta",
        count_path="/{model}:countTokens",
        count_request=gemini.count_request,
        embeddings=(BATCH_EMBED_CONTENTS, EMBED_CONTENT),
        model_resource_name=gemini.model_resource_name,
        wire_type=GeminiWire,
        default_profile="gemini",
        response_only_fields=frozenset({"candidates", "promptFeedback", "usageMetadata", "error"}),
    ),
    client=_client(
        "gemini",
        gemini,
        input_field="contents",
        part_types=gemini.PART_TYPES,
        answer_content=gemini.AnswerContent,
        turn_actions=gemini.TURN_ACTIONS,
        other_actions=("countTokens", "embedContent", "batchEmbedContents"),
        path_prefixes=("/v1beta/", "/v1/interactions"),
        request_at_path=gemini.request_at_path,
        has_key_in_query=True,
        keepalive=b"\n",  # its clients read SSE comments as data, but ignore blank lines
        streams_json_array=True,
        model_from_hub=gemini.model_from_hub,
        models_from_hub=gemini.models_from_hub,
        unsupported_paths=tuple(
            (f"/{version}/interactions", gemini.INSTEAD_OF_INTERACTIONS) for version in ("v1beta", "v1")
        ),
        turn_to_count=gemini.turn_to_count,
        count_field="totalTokens",
    ),
)
OLLAMA: Final = Dialect(
    name="ollama",
    title="Ollama",
    server=make_server(
        ollama,
        turn_path="/api/chat",
        models_path="/api/tags",
        embeddings=(EMBED, OLD_EMBEDDINGS),
        base_path="",
        framing="json_lines",
        wire_type=OllamaWire,
        default_profile="ollama-native",
        wire_after_refusal=ollama.wire_after_refusal,
        accepts_unsealed_reasoning=True,
        response_only_fields=frozenset({"done", "error"}),
    ),
    client=_client(
        "ollama",
        ollama,
        answer_content=ollama.AnswerContent,
        turn_paths=("/api/chat", "/api/generate"),
        path_prefixes=("/api/",),
        request_at_path=ollama.request_at_path,
        framing="json_lines",
        keepalive=b" ",  # its clients decode every line, blank ones too, but ignore white space before a value
        model_from_hub=ollama.model_from_hub,
        models_from_hub=ollama.models_from_hub,
    ),
)
VSCODE: Final = Dialect(
    name="vscode",
    title="VS Code's language models",
    client=_client(
        "vscode",
        vscode,
        turn_paths=("/v1/vscode/chat",),
        path_prefixes=("/v1/vscode/",),
        framing="json_lines",
        keepalive=b"\n",
        count_field="count",
    ),
)
AGENT_LOG: Final = Dialect(name="agent_log", title="Logs of command-line agents", log_to_hub=agent_log.EventsToHub)

DIALECTS: Final[dict[DialectName, Dialect]] = {
    dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES, GEMINI, OLLAMA, VSCODE, AGENT_LOG)
}
SERVER_DIALECTS: Final = {
    cast(ServerDialectName, name): dialect.server for name, dialect in DIALECTS.items() if dialect.server is not None
}
CLIENT_DIALECTS: Final = {
    cast(ClientDialectName, name): dialect.client for name, dialect in DIALECTS.items() if dialect.client is not None
}
HUB_DIALECT: Final = CLIENT_DIALECTS["responses"]
SERVER_DIALECT_NAMES: Final[tuple[ServerDialectName, ...]] = get_args(ServerDialectName)
