"""dspy, with the language model of the set-up."""

from __future__ import annotations

import asyncio

import dspy
from task import PROMPT, City, read_note


def plain(setup, model):
    return {"text": dspy.Predict("question -> answer")(question=PROMPT).answer}


def streamed(setup, model):
    predict = dspy.Predict("question -> answer")
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    stream = dspy.streamify(predict, stream_listeners=[listener])

    async def read():
        parts = [part async for part in stream(question=PROMPT)]
        pieces = [part.chunk for part in parts if isinstance(part, dspy.streaming.StreamResponse)]
        return {"text": parts[-1].answer, "pieces": pieces}

    return asyncio.run(read())


def tool(setup, model):
    return {"text": dspy.ReAct("question -> answer", tools=[read_note], max_iters=3)(question=PROMPT).answer}


failed_tool = tool


def reasoning(setup, model):
    """Modules show no reasoning; the language model does."""
    [answer] = dspy.settings.lm(PROMPT)
    return {"text": answer["text"], "reasoning": answer["reasoning_content"]}


def structured(setup, model):
    with dspy.context(adapter=dspy.JSONAdapter()):
        return {"parsed": dspy.Predict(Find)(question=PROMPT).city.model_dump()}


class Find(dspy.Signature):
    """Finds a city."""

    question: str = dspy.InputField()
    city: City = dspy.OutputField()
