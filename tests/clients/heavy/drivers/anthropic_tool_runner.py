"""The tool runner of the anthropic SDK for Python."""

from __future__ import annotations

from anthropic import beta_tool
from task import PROMPT, City, read_note

ASKED = {
    "max_tokens": 4000,
    "messages": [{"role": "user", "content": PROMPT}],
    "tools": [beta_tool(read_note)],
}


def plain(setup, model):
    return _outcome(setup.client.beta.messages.tool_runner(model=model, **ASKED))


def tool(setup, model):
    thinking = {"type": "enabled", "budget_tokens": 2000}
    return _outcome(setup.client.beta.messages.tool_runner(model=model, thinking=thinking, **ASKED))


failed_tool = reasoning = tool


def streamed(setup, model):
    pieces = []
    for stream in setup.client.beta.messages.tool_runner(model=model, stream=True, **ASKED):
        pieces += [event.text for event in stream if event.type == "text"]
    return {"text": "".join(pieces), "pieces": pieces}


def structured(setup, model):
    asked = {**ASKED, "tools": []}
    runner = setup.client.beta.messages.tool_runner(model=model, output_format=City, **asked)
    return {"parsed": runner.until_done().parsed_output.model_dump()}


def _outcome(runner):
    thinking = ""
    for message in runner:
        thinking += "".join(block.thinking for block in message.content if block.type == "thinking")
    text = "".join(block.text for block in message.content if block.type == "text")
    return {"text": text, "reasoning": thinking}
