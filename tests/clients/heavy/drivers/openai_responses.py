"""The openai SDK for Python, Responses API."""

from __future__ import annotations

import json

from task import PARAMETERS, PROMPT, City, read_note

TOOL = {"type": "function", "name": "read_note", "description": "Reads a note.", "parameters": PARAMETERS}


def plain(setup, model):
    return {"text": setup.client.responses.create(model=model, input=PROMPT).output_text}


def streamed(setup, model):
    with setup.client.responses.stream(model=model, input=PROMPT) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        return {"text": stream.get_final_response().output_text, "pieces": pieces}


def tool(setup, model):
    items = [{"role": "user", "content": PROMPT}]
    reasoning = []
    while True:
        response = setup.client.responses.create(
            model=model, input=items, tools=[TOOL], include=["reasoning.encrypted_content"]
        )
        items += response.output
        reasoning += [part.text for item in response.output if item.type == "reasoning" for part in item.content or ()]
        reasoning += [part.text for item in response.output if item.type == "reasoning" for part in item.summary or ()]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return {"text": response.output_text, "reasoning": "".join(reasoning)}
        for call in calls:
            try:
                output = read_note(**json.loads(call.arguments))
            except ValueError as error:
                output = f"Error: {error}"
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


failed_tool = reasoning = tool


def structured(setup, model):
    return {
        "parsed": setup.client.responses.parse(model=model, input=PROMPT, text_format=City).output_parsed.model_dump()
    }
