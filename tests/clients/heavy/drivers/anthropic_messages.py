"""The anthropic SDK for Python."""

from __future__ import annotations

from task import PARAMETERS, PROMPT, City, read_note

ASKED = {"max_tokens": 4000, "messages": [{"role": "user", "content": PROMPT}]}
TOOL = {"name": "read_note", "description": "Reads a note.", "input_schema": PARAMETERS}


def plain(setup, model):
    return {"text": setup.client.messages.create(model=model, **ASKED).content[0].text}


def streamed(setup, model):
    with setup.client.messages.stream(model=model, **ASKED) as stream:
        pieces = list(stream.text_stream)
        return {"text": stream.get_final_text(), "pieces": pieces}


def tool(setup, model):
    messages = [*ASKED["messages"]]
    thinking = ""
    while True:
        message = setup.client.messages.create(
            model=model,
            max_tokens=4000,
            messages=messages,
            tools=[TOOL],
            thinking={"type": "enabled", "budget_tokens": 2000},
        )
        messages.append({"role": "assistant", "content": message.content})
        thinking += "".join(block.thinking for block in message.content if block.type == "thinking")
        uses = [block for block in message.content if block.type == "tool_use"]
        if not uses:
            text = "".join(block.text for block in message.content if block.type == "text")
            return {"text": text, "reasoning": thinking}
        messages.append({"role": "user", "content": [_result(use) for use in uses]})


failed_tool = reasoning = tool


def _result(use):
    try:
        return {"type": "tool_result", "tool_use_id": use.id, "content": read_note(**use.input)}
    except ValueError as error:
        return {"type": "tool_result", "tool_use_id": use.id, "content": str(error), "is_error": True}


def structured(setup, model):
    return {"parsed": setup.client.messages.parse(model=model, output_format=City, **ASKED).parsed_output.model_dump()}
