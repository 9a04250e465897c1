"""Features of requests, in the form of each dialect that has them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from tools.dialect_features import ARGUMENTS, PIXEL, Feature, Json

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.dialect import ServerDialectName

IMAGE_URL: Final = "https://pics.example/cat.png"
PDF_DATA: Final = "JVBERi0xLjQ="
TEXT: Final = "Now in French."
SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
HI_CHAT: Final = {"role": "user", "content": "Hi"}
HI_GEMINI: Final = {"role": "user", "parts": [{"text": "Hi"}]}
HI_HUB: Final = {"type": "message", "role": "user", "content": "Hi"}


def _user_message(
    chat: Json | None = None,
    responses: Json | None = None,
    messages: Json | None = None,
    gemini: Json | None = None,
    ollama: Json | None = None,
) -> dict[ServerDialectName, Json]:
    """Return a user message with one part; for Ollama, a user message with these members."""
    fields: dict[ServerDialectName, Json] = {}
    if chat:
        fields["chat"] = {"messages": [{"role": "user", "content": [chat]}]}
    if responses:
        fields["responses"] = {"input": [{"role": "user", "content": [responses]}]}
    if messages:
        fields["messages"] = {"messages": [{"role": "user", "content": [messages]}]}
    if gemini:
        fields["gemini"] = {"contents": [{"role": "user", "parts": [gemini]}]}
    if ollama:
        fields["ollama"] = {"messages": [{"role": "user", **ollama}]}
    return fields


def _tool_result(chat: Any, responses: Any, messages: Any, gemini: Json | None) -> dict[ServerDialectName, Json]:
    """Return a tool call and its result."""
    call: Json = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    fields: dict[ServerDialectName, Json] = {
        "responses": {
            "input": [
                HI_HUB,
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": responses},
            ],
        },
    }
    if chat:
        result = {"role": "tool", "tool_call_id": "call_1", "content": chat}
        fields["chat"] = {"messages": [HI_CHAT, {"role": "assistant", "tool_calls": [call]}, result]}
    if messages:
        fields["messages"] = {
            "messages": [
                HI_CHAT,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": messages}]},
            ]
        }
    if gemini:
        fields["gemini"] = {
            "contents": [
                HI_GEMINI,
                {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "look", **gemini}}]},
            ]
        }
    return fields


def _settings(
    chat: Json | None,
    responses: Json | None,
    messages: Json | None,
    gemini: Json | None,
    ollama: Json | None = None,
) -> dict[ServerDialectName, Json]:
    fields: dict[ServerDialectName, Json | None] = {
        "chat": chat,
        "responses": responses,
        "messages": messages,
        "gemini": {"generationConfig": gemini} if gemini else None,
        "ollama": {"options": ollama} if ollama else None,
    }
    return {dialect: members for dialect, members in fields.items() if members}


def _tools(
    chat: Json | None,
    responses: Json | None,
    messages: Json | None,
    gemini: Json | None,
    ollama: Json | None = None,
) -> dict[ServerDialectName, Json]:
    fields: dict[ServerDialectName, Json | None] = {
        "chat": chat,
        "responses": responses,
        "messages": messages,
        "gemini": gemini,
        "ollama": ollama,
    }
    return {dialect: {"tools": [tool]} for dialect, tool in fields.items() if tool}


FUNCTION: Final[dict[ServerDialectName, Json]] = _tools(
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA}},
    {"type": "function", "name": "look", "parameters": SCHEMA},
    {"name": "look", "input_schema": SCHEMA},
    {"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]},
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA}},
)


def _tool_choice(chat: Any, responses: Any, messages: Any, gemini: Any) -> dict[ServerDialectName, Json]:
    """Return a tool choice with a function to choose. Ollama has no tool choice."""
    fields: dict[ServerDialectName, Json] = {
        "chat": {"tool_choice": chat},
        "responses": {"tool_choice": responses},
        "messages": {"tool_choice": messages},
        "gemini": {"toolConfig": gemini and {"functionCallingConfig": gemini}},
    }
    return {dialect: FUNCTION[dialect] | choice for dialect, choice in fields.items() if any(choice.values())}


HELLO_HUB: Final = {"type": "message", "role": "assistant", "content": "Hello."}
SIGNATURE: Final = "U0lHTkVE"
SEALED: Final = seal_reasoning("acme", {"a": "b"})
THOUGHT: Final[dict[ServerDialectName, Json]] = {
    "chat": {
        "messages": [
            HI_CHAT,
            {
                "role": "assistant",
                "content": "Hello.",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": SEALED}],
            },
            HI_CHAT,
        ]
    },
    "responses": {
        "input": [HI_HUB, {"type": "reasoning", "summary": [], "encrypted_content": SEALED}, HELLO_HUB, HI_HUB]
    },
    "messages": {
        "messages": [
            HI_CHAT,
            {
                "role": "assistant",
                "content": [{"type": "redacted_thinking", "data": SEALED}, {"type": "text", "text": "Hello."}],
            },
            HI_CHAT,
        ]
    },
    "gemini": {
        "contents": [
            HI_GEMINI,
            {"role": "model", "parts": [{"text": "Hello.", "thoughtSignature": b64encode(SEALED.encode()).decode()}]},
            HI_GEMINI,
        ]
    },
}
ENVELOPES: Final[dict[ServerDialectName, Json]] = {
    "chat": {"reasoning_details": [{"type": "reasoning.encrypted", "data": SIGNATURE}]},
    "responses": {"encrypted_content": SIGNATURE},
    "messages": {"thinking": "Hm.", "signature": SIGNATURE},
    "gemini": {"signature": SIGNATURE, "on": "text"},
    "ollama": {"thinking": SIGNATURE},
}


REQUESTS: Final[dict[str, list[Feature]]] = {
    "Instructions": [
        Feature(
            "instructions",
            {
                "chat": {"messages": [{"role": "system", "content": "Be brief."}, HI_CHAT]},
                "responses": {"instructions": "Be brief."},
                "messages": {"system": "Be brief."},
                "gemini": {"systemInstruction": {"parts": [{"text": "Be brief."}]}},
                "ollama": {"messages": [{"role": "system", "content": "Be brief."}, HI_CHAT]},
            },
        ),
        Feature(
            "system message in the middle of a conversation",
            {
                "chat": {"messages": [HI_CHAT, {"role": "system", "content": TEXT}]},
                "responses": {"input": [HI_HUB, {"type": "message", "role": "system", "content": TEXT}]},
                "messages": {"messages": [HI_CHAT, {"role": "system", "content": TEXT}]},
                "ollama": {"messages": [HI_CHAT, {"role": "system", "content": TEXT}]},
            },
            mark=TEXT,
            note="user text with a mark",
        ),
        Feature(
            "role `developer`",
            {
                "chat": {"messages": [{"role": "developer", "content": TEXT}, HI_CHAT]},
                "responses": {"input": [{"type": "message", "role": "developer", "content": TEXT}, HI_HUB]},
            },
            mark=TEXT,
            note="system text",
        ),
    ],
    "Images, files, audio, video": [
        Feature(
            "image by URL",
            _user_message(
                {"type": "image_url", "image_url": {"url": IMAGE_URL}},
                {"type": "input_image", "image_url": IMAGE_URL},
                {"type": "image", "source": {"type": "url", "url": IMAGE_URL}},
                {"fileData": {"fileUri": IMAGE_URL, "mimeType": "image/png"}},
            ),
            mark=IMAGE_URL,
        ),
        Feature(
            "inline image",
            _user_message(
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
                {"images": [PIXEL]},
            ),
            mark=PIXEL,
        ),
        Feature(
            "`detail` of an image",
            _user_message(
                {"type": "image_url", "image_url": {"url": IMAGE_URL, "detail": "high"}},
                {"type": "input_image", "image_url": IMAGE_URL, "detail": "high"},
            ),
            mark='"high"',
        ),
        Feature(
            "image in a tool result",
            _tool_result(
                [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}],
                [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}],
                [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
                {"parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            ),
            mark=PIXEL,
            note="sent after all results of the turn",
        ),
        Feature(
            "inline PDF",
            _user_message(
                {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF_DATA}"}},
                {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF_DATA}"},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF_DATA}},
            ),
            mark=PDF_DATA,
        ),
        Feature(
            "PDF by URL",
            _user_message(
                None,
                {"type": "input_file", "file_url": "https://pics.example/a.pdf"},
                {"type": "document", "source": {"type": "url", "url": "https://pics.example/a.pdf"}},
                {"fileData": {"fileUri": "https://pics.example/a.pdf", "mimeType": "application/pdf"}},
            ),
            mark="https://pics.example/a.pdf",
        ),
        Feature(
            "audio",
            _user_message(
                {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
                {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
                None,
                {"inlineData": {"mimeType": "audio/wav", "data": PIXEL}},
            ),
            mark=PIXEL,
        ),
        Feature(
            "video",
            _user_message(
                {"type": "video_url", "video_url": {"url": "https://pics.example/a.mp4"}},
                {"type": "input_video", "video_url": "https://pics.example/a.mp4"},
                None,
                {"fileData": {"fileUri": "https://pics.example/a.mp4", "mimeType": "video/mp4"}},
            ),
            mark="https://pics.example/a.mp4",
        ),
        Feature(
            "video in a tool result",
            _tool_result(
                None,
                [{"type": "input_video", "video_url": f"data:video/mp4;base64,{PIXEL}"}],
                None,
                {"parts": [{"inlineData": {"mimeType": "video/mp4", "data": PIXEL}}]},
            ),
            mark=PIXEL,
            note="sent after all results of the turn",
        ),
    ],
    "Tools": [
        Feature("functions", FUNCTION),
        Feature(
            "`strict` of a function",
            _tools(
                {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}},
                {"type": "function", "name": "look", "parameters": SCHEMA, "strict": True},
                {"name": "look", "input_schema": SCHEMA, "strict": True},
                None,
            ),
        ),
        Feature(
            "parallel calls and their results",
            {
                "chat": {
                    "messages": [
                        HI_CHAT,
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {
                                    "id": f"call_{name}",
                                    "type": "function",
                                    "function": {"name": name, "arguments": ARGUMENTS},
                                }
                                for name in ("one", "two")
                            ],
                        },
                        {"role": "tool", "tool_call_id": "call_one", "content": "1"},
                        {"role": "tool", "tool_call_id": "call_two", "content": "2"},
                    ]
                },
                "responses": {
                    "input": [
                        HI_HUB,
                        {"type": "function_call", "call_id": "call_one", "name": "one", "arguments": ARGUMENTS},
                        {"type": "function_call", "call_id": "call_two", "name": "two", "arguments": ARGUMENTS},
                        {"type": "function_call_output", "call_id": "call_one", "output": "1"},
                        {"type": "function_call_output", "call_id": "call_two", "output": "2"},
                    ]
                },
                "messages": {
                    "messages": [
                        HI_CHAT,
                        {
                            "role": "assistant",
                            "content": [
                                {"type": "tool_use", "id": f"call_{name}", "name": name, "input": {"city": "Bonn"}}
                                for name in ("one", "two")
                            ],
                        },
                        {
                            "role": "user",
                            "content": [
                                {"type": "tool_result", "tool_use_id": "call_one", "content": "1"},
                                {"type": "tool_result", "tool_use_id": "call_two", "content": "2"},
                            ],
                        },
                    ]
                },
                "gemini": {
                    "contents": [
                        HI_GEMINI,
                        {
                            "role": "model",
                            "parts": [
                                {"functionCall": {"name": name, "args": {"city": "Bonn"}}} for name in ("one", "two")
                            ],
                        },
                        {
                            "role": "user",
                            "parts": [
                                {"functionResponse": {"name": "one", "response": {"output": "1"}}},
                                {"functionResponse": {"name": "two", "response": {"output": "2"}}},
                            ],
                        },
                    ]
                },
                "ollama": {
                    "messages": [
                        HI_CHAT,
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {"id": f"call_{name}", "function": {"name": name, "arguments": {"city": "Bonn"}}}
                                for name in ("one", "two")
                            ],
                        },
                        {"role": "tool", "tool_name": "one", "tool_call_id": "call_one", "content": "1"},
                        {"role": "tool", "tool_name": "two", "tool_call_id": "call_two", "content": "2"},
                    ]
                },
            },
            mark="Bonn",
            note="each call gets an id, always the same one",
        ),
        Feature(
            "failed tool",
            {
                "messages": {
                    "messages": [
                        HI_CHAT,
                        {
                            "role": "assistant",
                            "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}],
                        },
                        {
                            "role": "user",
                            "content": [
                                {
                                    "type": "tool_result",
                                    "tool_use_id": "call_1",
                                    "content": "no such file",
                                    "is_error": True,
                                }
                            ],
                        },
                    ]
                },
                "gemini": {
                    "contents": [
                        HI_GEMINI,
                        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
                        {
                            "role": "user",
                            "parts": [{"functionResponse": {"name": "look", "response": {"error": "no such file"}}}],
                        },
                    ]
                },
            },
            mark="no such file",
            note="the text of the result begins with `[tool error]`",
        ),
        Feature(
            "`custom` tools with a grammar",
            _tools(
                {
                    "type": "custom",
                    "custom": {
                        "name": "patch",
                        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}},
                    },
                },
                {
                    "type": "custom",
                    "name": "patch",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
                },
                None,
                None,
            ),
            mark='"patch"',
            note="sent as a function with one string parameter, and converted back",
        ),
        Feature(
            "`namespace`",
            _tools(
                None,
                {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}]},
                None,
                None,
            ),
            mark="read",
            note="sent as functions such as `files__read`, and converted back",
        ),
        Feature(
            "`additional_tools`",
            {
                "responses": {
                    "input": [{"type": "additional_tools", "tools": [{"type": "function", "name": "read"}]}, HI_HUB]
                }
            },
            mark="read",
            note="sent with the other tools",
        ),
        *(
            Feature(
                f"`{kind}`",
                _tools(None, {"type": kind}, None, None),
                mark=kind,
                note="sent as a function; calls come back as their own items",
            )
            for kind in ("apply_patch", "shell", "local_shell")
        ),
        Feature(
            "`tool_search`",
            _tools(None, {"type": "tool_search", "execution": "client"}, None, None),
            mark="tool_search",
            note="sent as a function; calls come back as their own items",
        ),
        Feature(
            "web search, which the server runs",
            {
                "chat": {"web_search_options": {}},
                "responses": {"tools": [{"type": "web_search"}]},
                "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
                "gemini": {"tools": [{"googleSearch": {}}]},
            },
            mark="earch",
            note="the form of the client; a server that has a search gets its own form",
        ),
        Feature(
            "`tool_choice`: none",
            _tool_choice("none", "none", {"type": "none"}, {"mode": "NONE"}),
            absent_mark='"tools"',
            note="no tools are offered",
        ),
        Feature("`tool_choice`: required", _tool_choice("required", "required", {"type": "any"}, {"mode": "ANY"})),
        Feature(
            "`tool_choice`: one function",
            _tool_choice(
                {"type": "function", "function": {"name": "look"}},
                {"type": "function", "name": "look"},
                {"type": "tool", "name": "look"},
                {"mode": "ANY", "allowedFunctionNames": ["look"]},
            ),
        ),
        Feature(
            "`tool_choice`: allowed tools",
            _tool_choice(
                {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "look"}}],
                    },
                },
                {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
                None,
                {"mode": "ANY", "allowedFunctionNames": ["look"]},
            ),
            mark="look",
            note="all tools are sent, and calls of other tools are withheld",
        ),
        Feature(
            "`parallel_tool_calls: false`",
            {
                "chat": {**FUNCTION["chat"], "parallel_tool_calls": False},
                "responses": {**FUNCTION["responses"], "parallel_tool_calls": False},
                "messages": {
                    **FUNCTION["messages"],
                    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
                },
            },
        ),
    ],
    "Output format": [
        Feature(
            "JSON that follows a schema",
            {
                "chat": {
                    "response_format": {"type": "json_schema", "json_schema": {"name": "response", "schema": SCHEMA}}
                },
                "responses": {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
                "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
                "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
                "ollama": {"format": SCHEMA},
            },
            mark="city",
            note="described in the system text",
        ),
        Feature(
            "any JSON object",
            {
                "chat": {"response_format": {"type": "json_object"}},
                "responses": {"text": {"format": {"type": "json_object"}}},
                "gemini": {"generationConfig": {"responseMimeType": "application/json"}},
                "ollama": {"format": "json"},
            },
            mark="JSON",
            note="described in the system text",
        ),
        Feature(
            "`verbosity`", _settings({"verbosity": "low"}, {"text": {"verbosity": "low"}}, None, None), mark='"low"'
        ),
        Feature(
            "maximum of output tokens",
            _settings(
                {"max_tokens": 77},
                {"max_output_tokens": 77},
                {"max_tokens": 77},
                {"maxOutputTokens": 77},
                {"num_predict": 77},
            ),
        ),
        Feature(
            "stop sequences",
            _settings(
                {"stop": ["END"]}, None, {"stop_sequences": ["END"]}, {"stopSequences": ["END"]}, {"stop": ["END"]}
            ),
            mark="END",
        ),
        Feature("several answers (`n`)", _settings({"n": 2}, None, None, {"candidateCount": 2}), mark="2"),
        Feature(
            "logprobs",
            {
                **_settings(
                    {"logprobs": True, "top_logprobs": 3},
                    {"top_logprobs": 3, "include": ["message.output_text.logprobs"]},
                    None,
                    {"responseLogprobs": True, "logprobs": 3},
                ),
                "ollama": {"logprobs": True, "top_logprobs": 3},
            },
        ),
    ],
    "Sampling": [
        Feature("`temperature`", _settings(*[{"temperature": 0.25}] * 5)),
        Feature(
            "`top_p`", _settings({"top_p": 0.75}, {"top_p": 0.75}, {"top_p": 0.75}, {"topP": 0.75}, {"top_p": 0.75})
        ),
        Feature("`top_k`", _settings({"top_k": 77}, None, {"top_k": 77}, {"topK": 77}, {"top_k": 77}), mark="77"),
        Feature("`min_p`", _settings({"min_p": 0.125}, None, None, None, {"min_p": 0.125}), mark="0.125"),
        Feature("`seed`", _settings({"seed": 777}, None, None, {"seed": 777}, {"seed": 777}), mark="777"),
        Feature(
            "penalties",
            _settings(
                {"presence_penalty": 0.5, "frequency_penalty": 0.25},
                {"presence_penalty": 0.5, "frequency_penalty": 0.25},
                None,
                {"presencePenalty": 0.5, "frequencyPenalty": 0.25},
                {"presence_penalty": 0.5, "frequency_penalty": 0.25},
            ),
        ),
    ],
    "Reasoning": [
        Feature(
            "effort, as a level",
            {
                "chat": {"reasoning_effort": "high"},
                "responses": {"reasoning": {"effort": "high"}},
                "messages": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
                "gemini": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}}},
                "ollama": {"think": "high"},
            },
            mark="udget",
            note="sent as a token budget",
        ),
        Feature(
            "effort, as a token budget",
            {
                "messages": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
                "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 2000}}},
            },
            mark="2000",
            other_marks=("effort", "udget", "thinkingLevel", '"think"'),
            note="the nearest level, or the budget of that level",
        ),
        Feature(
            "summary of the reasoning",
            {
                "responses": {"reasoning": {"summary": "auto"}},
                "messages": {"thinking": {"type": "adaptive", "display": "summarized"}},
                "gemini": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
            },
            mark="summarized",
            absent_mark="summar",
            note="the client gets the text of the reasoning as its summary; `display` of Messages clients stays within "
            "Messages",
            extra_fields={"responses": {"reasoning": {"effort": "high", "summary": "auto"}}},
        ),
    ],
    "Reasoning in the history": [
        Feature("sealed by the same server", THOUGHT, mark=SIGNATURE, sealed_reasoning=ENVELOPES),
        Feature(
            "sealed by another server", THOUGHT, mark=SIGNATURE, sealed_reasoning=ENVELOPES, is_own_reasoning=False
        ),
        Feature(
            "plain text",
            {
                "chat": {
                    "messages": [
                        HI_CHAT,
                        {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm."},
                        HI_CHAT,
                    ],
                },
                "responses": {
                    "input": [
                        HI_HUB,
                        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                        HELLO_HUB,
                        HI_HUB,
                    ]
                },
                "ollama": {
                    "messages": [HI_CHAT, {"role": "assistant", "content": "Hello.", "thinking": "Hm."}, HI_CHAT]
                },
            },
            mark="Hm.",
        ),
    ],
    "Other": [
        Feature("`metadata`", _settings({"metadata": {"a": "b"}}, {"metadata": {"a": "b"}}, None, None)),
        Feature("`user`", _settings({"user": "u-1"}, {"user": "u-1"}, {"metadata": {"user_id": "u-1"}}, None)),
        Feature(
            "`safety_identifier`",
            _settings({"safety_identifier": "u-1"}, {"safety_identifier": "u-1"}, None, None),
            mark="u-1",
            note="`metadata.user_id`",
        ),
        Feature(
            "`service_tier`",
            _settings(
                {"service_tier": "default"}, {"service_tier": "default"}, {"service_tier": "standard_only"}, None
            ),
        ),
        Feature(
            "`prompt_cache_key`",
            _settings({"prompt_cache_key": "k-1"}, {"prompt_cache_key": "k-1"}, None, None),
            mark="ephemeral",
            note="the prompt is cached without a key",
        ),
        Feature(
            "cache mark on a part (`cache_control`, `prompt_cache_breakpoint`)",
            {
                "chat": {
                    "messages": [
                        {
                            "role": "user",
                            "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
                        }
                    ]
                },
                "responses": {
                    "input": [
                        {
                            "role": "user",
                            "content": [
                                {
                                    "type": "input_text",
                                    "text": "Hi",
                                    "prompt_cache_breakpoint": {"mode": "explicit"},
                                }
                            ],
                        }
                    ]
                },
                "messages": {
                    "messages": [
                        {
                            "role": "user",
                            "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
                        }
                    ]
                },
            },
        ),
        Feature(
            "cache mark of the whole request (`cache_control`, `prompt_cache_options`)",
            {
                "chat": {"prompt_cache_options": {"mode": "implicit"}},
                "responses": {"prompt_cache_options": {"mode": "implicit"}},
                "messages": {"cache_control": {"type": "ephemeral"}},
            },
        ),
        Feature("`keep_alive`", {"ollama": {"keep_alive": "17m"}}, mark="17m"),
        Feature("`num_ctx`, and other options of Ollama", {"ollama": {"options": {"num_ctx": 8192}}}, mark="8192"),
        Feature(
            "safety settings", {"gemini": {"safetySettings": [{"category": "C", "threshold": "T"}]}}, mark='"threshold"'
        ),
    ],
}
