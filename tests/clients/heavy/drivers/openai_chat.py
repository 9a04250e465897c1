"""The openai SDK for Python, Chat Completions."""

from __future__ import annotations

import json

from task import PARAMETERS, PROMPT, City, read_note

TOOL = {
    "type": "function",
    "function": {"name": "read_note", "description": "Reads a note.", "parameters": PARAMETERS},
}
MESSAGES = [{"role": "user", "content": PROMPT}]


def plain(setup, model):
    return {"text": setup.client.chat.completions.create(model=model, messages=MESSAGES).choices[0].message.content}


def streamed(setup, model):
    chunks = setup.client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
    pieces = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    messages = [*MESSAGES]
    reasoning = ""
    while True:
        message = setup.client.chat.completions.create(model=model, messages=messages, tools=[TOOL]).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        reasoning += getattr(message, "reasoning_content", None) or ""
        if not message.tool_calls:
            return {"text": message.content, "reasoning": reasoning}
        for call in message.tool_calls:
            try:
                output = read_note(**json.loads(call.function.arguments))
            except ValueError as error:
                output = f"Error: {error}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


failed_tool = reasoning = tool


def structured(setup, model):
    completion = setup.client.chat.completions.parse(model=model, messages=MESSAGES, response_format=City)
    return {"parsed": completion.choices[0].message.parsed.model_dump()}
