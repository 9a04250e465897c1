"""One request in the words of four APIs, with what each of them cannot be told. No network is needed."""

from antiphon.dialects import chat, gemini, messages, responses

BODY = b"""{
  "model": "some-model",
  "instructions": "Answer briefly.",
  "input": [
    {"role": "user", "content": "What is the weather in Lima?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\\"city\\": \\"Lima\\"}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "21 degrees"}
  ],
  "tools": [
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"type": "web_search"}
  ],
  "max_output_tokens": 300
}"""

request, _ = responses.request_to_hub(BODY)
translated = {
    "chat": chat.request_from_hub(request),
    "messages": messages.request_from_hub(request),
    "gemini": gemini.request_from_hub(request),
    "responses": responses.request_from_hub(request),
}
for name, (body, losses) in translated.items():
    print(f"{name}: {body.decode()}")
    for loss in losses:
        print(f"  lost: {loss}")
