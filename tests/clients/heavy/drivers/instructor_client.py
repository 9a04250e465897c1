"""instructor, with the client of the set-up."""

from __future__ import annotations

from task import PROMPT, City

MESSAGES = [{"role": "user", "content": PROMPT}]


def structured(setup, model):
    return {"parsed": setup.client.create(model=model, messages=MESSAGES, response_model=City).model_dump()}


def streamed(setup, model):
    pieces = [
        part.model_dump() for part in setup.client.create_partial(model=model, messages=MESSAGES, response_model=City)
    ]
    return {"parsed": pieces[-1], "pieces": [str(piece) for piece in pieces]}
