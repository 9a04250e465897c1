"""Features of answers, in the form of each dialect that has them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from tools.dialect_features import ARGUMENTS, PIXEL, Feature, Json

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.dialect import ServerDialectName

SEALED: Final = seal_reasoning("acme", {"a": "b"})


def _chat_answer(content: Any = "Hello.", **members: Any) -> Json:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": content, **members}}]}


def _ollama_answer(content: str = "Hello.", **members: Any) -> Json:
    return {"message": {"role": "assistant", "content": content, **members}}


def _end_of_answer(chat: str, status: Json, messages: str, gemini: str) -> dict[ServerDialectName, Json]:
    return {
        "chat": {"choices": [{"message": {"content": "Hello."}, "finish_reason": chat}]},
        "responses": status,
        "messages": {"stop_reason": messages},
        "gemini": {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": gemini}]},
    }


def _chat_call(name: str) -> Json:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": ARGUMENTS}}


def _hub_call(name: str) -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{name}",
        "call_id": f"call_{name}",
        "name": name,
        "arguments": ARGUMENTS,
        "status": "completed",
    }


def _gemini_answer(*parts: Json) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


def _hub_text(**members: Any) -> Json:
    part = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": [], **members}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


def _usage(*, input_tokens: int = 100, cached: int = 0, written: int | None = None, reasoning: int = 0) -> Json:
    return {
        "input_tokens": input_tokens,
        "output_tokens": 20,
        "total_tokens": input_tokens + 20,
        "input_tokens_details": {
            "cached_tokens": cached,
            **({} if written is None else {"cache_write_tokens": written}),
        },
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


HELLO_TEXT: Final = {"type": "text", "text": "Hello."}
PAGE_URL: Final = "https://news.example/today"
ANSWERS: Final[dict[str, list[Feature]]] = {
    "Text and tool calls": [
        Feature(
            "text",
            {
                "chat": _chat_answer(),
                "responses": {"output": [_hub_text()]},
                "messages": {"content": [HELLO_TEXT]},
                "gemini": _gemini_answer({"text": "Hello."}),
                "ollama": _ollama_answer(),
            },
            mark="Hello.",
        ),
        Feature(
            "text and parallel calls in one turn",
            {
                "chat": _chat_answer(tool_calls=[_chat_call("one"), _chat_call("two")]),
                "responses": {"output": [_hub_text(), _hub_call("one"), _hub_call("two")]},
                "messages": {
                    "content": [HELLO_TEXT]
                    + [
                        {"type": "tool_use", "id": f"call_{name}", "name": name, "input": {"city": "Bonn"}}
                        for name in ("one", "two")
                    ]
                },
                "gemini": _gemini_answer(
                    {"text": "Hello."},
                    *(
                        {"functionCall": {"id": f"call_{name}", "name": name, "args": {"city": "Bonn"}}}
                        for name in ("one", "two")
                    ),
                ),
                "ollama": _ollama_answer(
                    tool_calls=[
                        {"id": f"call_{name}", "function": {"name": name, "arguments": {"city": "Bonn"}}}
                        for name in ("one", "two")
                    ]
                ),
            },
            mark="Bonn",
        ),
        Feature(
            "call of a `custom` tool",
            {
                "chat": _chat_answer(
                    content=None,
                    tool_calls=[{"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "+1"}}],
                ),
                "responses": {
                    "output": [
                        {
                            "type": "custom_tool_call",
                            "id": "ctc_1",
                            "call_id": "call_1",
                            "name": "patch",
                            "input": "+1",
                            "status": "completed",
                        }
                    ]
                },
            },
            mark="+1",
            note="a call of the function that replaces it",
        ),
        Feature(
            "refusal",
            {
                "chat": _chat_answer(content=None, refusal="I will not."),
                "responses": {
                    "output": [
                        {
                            "type": "message",
                            "id": "msg_1",
                            "status": "completed",
                            "role": "assistant",
                            "content": [{"type": "refusal", "refusal": "I will not."}],
                        }
                    ]
                },
                "messages": {"content": [{"type": "text", "text": "I will not."}], "stop_reason": "refusal"},
            },
            mark="I will not.",
            note="text; if the API has one, with the reason at the end",
        ),
        Feature(
            "citations of web pages",
            {
                "chat": _chat_answer(
                    annotations=[
                        {
                            "type": "url_citation",
                            "url_citation": {"url": PAGE_URL, "title": "T", "start_index": 0, "end_index": 6},
                        }
                    ]
                ),
                "responses": {
                    "output": [
                        _hub_text(
                            annotations=[
                                {
                                    "type": "url_citation",
                                    "url": PAGE_URL,
                                    "title": "T",
                                    "start_index": 0,
                                    "end_index": 6,
                                }
                            ]
                        )
                    ]
                },
                "messages": {
                    "content": [
                        {
                            **HELLO_TEXT,
                            "citations": [
                                {
                                    "type": "web_search_result_location",
                                    "url": PAGE_URL,
                                    "title": "T",
                                    "encrypted_index": "x",
                                    "cited_text": "Hello.",
                                }
                            ],
                        }
                    ]
                },
                "gemini": {
                    "candidates": [
                        {
                            "content": {"role": "model", "parts": [{"text": "Hello."}]},
                            "finishReason": "STOP",
                            "groundingMetadata": {
                                "groundingChunks": [{"web": {"uri": PAGE_URL, "title": "T"}}],
                                "groundingSupports": [
                                    {
                                        "segment": {"startIndex": 0, "endIndex": 6, "text": "Hello."},
                                        "groundingChunkIndices": [0],
                                    }
                                ],
                            },
                        }
                    ]
                },
            },
            mark=PAGE_URL,
            note="a citation in another form",
        ),
        Feature(
            "logprobs",
            {
                "chat": {
                    "choices": [
                        {
                            "message": {"content": "Hello."},
                            "logprobs": {
                                "content": [{"token": "Hello.", "logprob": -0.125, "bytes": [72], "top_logprobs": []}]
                            },
                            "finish_reason": "stop",
                        }
                    ]
                },
                "responses": {
                    "output": [
                        _hub_text(logprobs=[{"token": "Hello.", "logprob": -0.125, "bytes": [72], "top_logprobs": []}])
                    ]
                },
                "gemini": {
                    "candidates": [
                        {
                            "content": {"role": "model", "parts": [{"text": "Hello."}]},
                            "finishReason": "STOP",
                            "logprobsResult": {"chosenCandidates": [{"token": "Hello.", "logProbability": -0.125}]},
                        }
                    ]
                },
                "ollama": {"logprobs": [{"token": "Hello.", "logprob": -0.125, "bytes": [72], "top_logprobs": []}]},
            },
            mark="-0.125",
            note="without the bytes of each token",
        ),
        Feature(
            "image",
            {
                "gemini": _gemini_answer({"inlineData": {"mimeType": "image/png", "data": PIXEL}}),
                "ollama": _ollama_answer(images=[PIXEL]),
            },
            mark=PIXEL,
        ),
        Feature(
            "call of a hosted tool: web search of Responses",
            {
                "responses": {
                    "output": [
                        {
                            "type": "web_search_call",
                            "id": "ws_1",
                            "status": "completed",
                            "action": {"type": "search", "query": "news"},
                        }
                    ]
                }
            },
            mark="news",
        ),
        Feature(
            "call of a hosted tool: web search of Messages",
            {
                "messages": {
                    "content": [
                        {
                            "type": "server_tool_use",
                            "id": "srvtoolu_1",
                            "name": "web_search",
                            "input": {"query": "news"},
                        },
                        HELLO_TEXT,
                    ]
                }
            },
            mark="srvtoolu_1",
        ),
        Feature(
            "call of a hosted tool: code execution of Gemini",
            {
                "gemini": _gemini_answer(
                    {"executableCode": {"language": "PYTHON", "code": "print(5)"}}, {"text": "Hello."}
                )
            },
            mark="print(5)",
        ),
    ],
    "Reasoning": [
        Feature(
            "text of the reasoning",
            {
                "chat": _chat_answer(reasoning_content="Hm."),
                "responses": {
                    "output": [
                        {
                            "type": "reasoning",
                            "id": "rs_1",
                            "summary": [],
                            "content": [{"type": "reasoning_text", "text": "Hm."}],
                        },
                        _hub_text(),
                    ]
                },
                "messages": {"content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, HELLO_TEXT]},
                "gemini": _gemini_answer({"text": "Hm.", "thought": True}, {"text": "Hello."}),
                "ollama": _ollama_answer(thinking="Hm."),
            },
            mark="Hm.",
            note="a summary",
        ),
        Feature(
            "summary of the reasoning",
            {
                "responses": {
                    "output": [
                        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
                        _hub_text(),
                    ]
                },
            },
            mark="Hm.",
            note="sent as the text of the reasoning",
        ),
        Feature(
            "sealed data for the server that made it",
            {
                "chat": _chat_answer(reasoning_details=[{"type": "reasoning.encrypted", "data": SEALED}]),
                "responses": {
                    "output": [
                        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED},
                        _hub_text(),
                    ]
                },
                "messages": {"content": [{"type": "redacted_thinking", "data": SEALED}, HELLO_TEXT]},
                "gemini": _gemini_answer({"text": "Hello.", "thoughtSignature": b64encode(SEALED.encode()).decode()}),
            },
            mark="antiphon.reasoning.",
            note="in an envelope with the name of that server",
        ),
    ],
    "End of the answer": [
        Feature(
            "truncated by the token limit",
            {
                **_end_of_answer(
                    "length",
                    {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
                    "max_tokens",
                    "MAX_TOKENS",
                ),
                "ollama": {"done_reason": "length"},
            },
        ),
        Feature(
            "stopped by a filter",
            _end_of_answer(
                "content_filter",
                {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
                "refusal",
                "SAFETY",
            ),
            mark="refus",
            note="a refusal",
        ),
        Feature(
            "ended by a malformed tool call",
            {
                "responses": {"status": "incomplete", "incomplete_details": {"reason": "malformed_function_call"}},
                "gemini": {
                    "candidates": [
                        {"content": {"parts": [{"text": "Hello."}]}, "finishReason": "MALFORMED_FUNCTION_CALL"}
                    ]
                },
            },
            mark="Hello.",
        ),
        Feature(
            "the stop sequence that ended it",
            {"messages": {"stop_reason": "stop_sequence", "stop_sequence": "END"}},
            mark="END",
        ),
    ],
    "Usage": [
        Feature(
            "input and output tokens",
            {
                "chat": {"usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}},
                "responses": {"usage": _usage()},
                "messages": {"usage": {"input_tokens": 100, "output_tokens": 20}},
                "gemini": {
                    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
                },
                "ollama": {"prompt_eval_count": 100, "eval_count": 20},
            },
        ),
        Feature(
            "cached tokens (Messages counts them separately)",
            {
                "chat": {
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 20,
                        "prompt_tokens_details": {"cached_tokens": 60},
                    }
                },
                "responses": {"usage": _usage(cached=60)},
                "messages": {"usage": {"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 20}},
                "gemini": {
                    "usageMetadata": {
                        "promptTokenCount": 100,
                        "candidatesTokenCount": 20,
                        "cachedContentTokenCount": 60,
                    }
                },
            },
            other_marks=('"prompt_eval_count":100',),
            note="counted as input tokens",
        ),
        Feature(
            "reasoning tokens (Gemini counts them separately)",
            {
                "chat": {
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 20,
                        "completion_tokens_details": {"reasoning_tokens": 15},
                    }
                },
                "responses": {"usage": _usage(reasoning=15)},
                "messages": {
                    "usage": {
                        "input_tokens": 100,
                        "output_tokens": 20,
                        "output_tokens_details": {"thinking_tokens": 15},
                    }
                },
                "gemini": {
                    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 5, "thoughtsTokenCount": 15}
                },
            },
            other_marks=('"eval_count":20',),
            note="counted as output tokens",
        ),
        Feature(
            "tokens written to a cache",
            {
                "chat": {
                    "usage": {
                        "prompt_tokens": 117,
                        "completion_tokens": 20,
                        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 77},
                    }
                },
                "responses": {"usage": _usage(input_tokens=117, written=77)},
                "messages": {"usage": {"input_tokens": 40, "cache_creation_input_tokens": 77, "output_tokens": 20}},
            },
            other_marks=("117",),
            note="counted as input tokens",
        ),
    ],
}
# The events of a stream that fails in the middle, in the form of each dialect.
ERROR_MESSAGE: Final = b"The server is on fire."
BROKEN_STREAMS: Final[dict[ServerDialectName, bytes]] = {
    "chat": b'data: {"error":{"message":"%b","code":500}}\n\n' % ERROR_MESSAGE,
    "responses": b'data: {"type":"error","sequence_number":1,"error":{"type":"server_error","message":"%b"}}\n\n'
    % ERROR_MESSAGE,
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"%b"}}\n\n' % ERROR_MESSAGE,
    "gemini": b'data: {"error":{"code":500,"status":"INTERNAL","message":"%b"}}\n\n' % ERROR_MESSAGE,
    "ollama": b'{"error":"%b"}\n' % ERROR_MESSAGE,
}
