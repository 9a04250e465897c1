"""`llm`, by its Python API; its models are in the file of the set-up."""

from __future__ import annotations

import json

import llm
from task import PROMPT, City, read_note


def plain(setup, model):
    return {"text": llm.get_model(model).prompt(PROMPT, stream=False).text()}


def streamed(setup, model):
    pieces = [piece for piece in llm.get_model(model).prompt(PROMPT) if piece]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    responses = list(llm.get_model(model).chain(PROMPT, tools=[read_note]).responses())
    return {"text": responses[-1].text()}


failed_tool = tool


def structured(setup, model):
    return {"parsed": json.loads(llm.get_model(model).prompt(PROMPT, schema=City, stream=False).text())}
