"""smolagents, with the model of the set-up."""

from __future__ import annotations

import json

from smolagents import ChatMessage, MessageRole, ToolCallingAgent
from smolagents import tool as make_tool
from task import PROMPT, City, read_note

MESSAGES = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": PROMPT}])]


def plain(setup, model):
    return {"text": setup.model.generate(MESSAGES).content}


def streamed(setup, model):
    pieces = [delta.content for delta in setup.model.generate_stream(MESSAGES) if delta.content]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    agent = ToolCallingAgent(tools=[make_tool(read_note)], model=setup.model, max_steps=4, verbosity_level=0)
    return {"text": str(agent.run(PROMPT))}


failed_tool = tool


def structured(setup, model):
    schema = {"name": "city", "schema": City.model_json_schema()}
    message = setup.model.generate(MESSAGES, response_format={"type": "json_schema", "json_schema": schema})
    return {"parsed": json.loads(message.content)}
