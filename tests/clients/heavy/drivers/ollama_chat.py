"""The ollama SDK for Python."""

from __future__ import annotations

import json

from task import PROMPT, City, read_note

MESSAGES = [{"role": "user", "content": PROMPT}]


def plain(setup, model):
    return {"text": setup.client.chat(model=model, messages=MESSAGES).message.content}


def streamed(setup, model):
    pieces = [part.message.content for part in setup.client.chat(model=model, messages=MESSAGES, stream=True)]
    pieces = [piece for piece in pieces if piece]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    messages = [*MESSAGES]
    thinking = ""
    while True:
        message = setup.client.chat(model=model, messages=messages, tools=[read_note], think=True).message
        messages.append(message)
        thinking += message.thinking or ""
        if not message.tool_calls:
            return {"text": message.content, "reasoning": thinking}
        for call in message.tool_calls:
            try:
                output = read_note(**call.function.arguments)
            except ValueError as error:
                output = f"Error: {error}"
            messages.append({"role": "tool", "tool_name": call.function.name, "content": output})


failed_tool = reasoning = tool


def structured(setup, model):
    message = setup.client.chat(model=model, messages=MESSAGES, format=City.model_json_schema()).message
    return {"parsed": json.loads(message.content)}
