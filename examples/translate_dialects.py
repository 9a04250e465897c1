"""Translates one request to four APIs and prints what each of them cannot express. No network is needed."""

from typing import Literal

from antiphon import translate

BODY = b"""{
  "model": "some-model",
  "instructions": "Answer briefly.",
  "input": [
    {"role": "user", "content": "What is the weather in Lima?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\\"city\\": \\"Lima\\"}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "21 degrees"}
  ],
  "tools": [
    {
      "type": "function",
      "name": "weather",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}
    },
    {"type": "web_search"}
  ],
  "max_output_tokens": 300
}"""

DIALECTS: list[Literal["chat", "messages", "gemini", "responses"]] = ["chat", "messages", "gemini", "responses"]

for dialect in DIALECTS:
    translation = translate.request(BODY, from_="responses", to=dialect)
    print(f"{dialect}: {translation.body.decode()}")
    for loss in translation.losses:
        print(f"  lost: {loss}")
