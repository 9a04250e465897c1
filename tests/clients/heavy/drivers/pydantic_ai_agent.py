"""pydantic-ai, with the model of the set-up."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, ModelRetry, NativeOutput
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from task import PROMPT, City, read_note


def plain(setup, model):
    return {"text": Agent(setup.model).run_sync(PROMPT).output}


def streamed(setup, model):
    async def read():
        async with Agent(setup.model).run_stream(PROMPT) as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    pieces = asyncio.run(read())
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    result = Agent(setup.model, tools=[read], model_settings=_settings(setup.model)).run_sync(PROMPT)
    parts = [part for message in result.all_messages() for part in message.parts]
    texts = []
    for part in parts:
        if isinstance(part, ThinkingPart):
            raw = (part.provider_details or {}).get("raw_content") or []
            texts.append(part.content or "".join(raw))
    return {"text": result.output, "reasoning": "".join(texts)}


failed_tool = reasoning = tool


def _settings(model):
    """The chat model returns reasoning without the seal that servers require: the gateway restores it from stored answers.
    The Google model shows thoughts only on request."""
    if isinstance(model, OpenAIChatModel):
        return {"openai_store": True}
    return {"google_thinking_config": {"include_thoughts": True}} if isinstance(model, GoogleModel) else {}


def structured(setup, model):
    is_native = setup.model.profile.get("supports_json_schema_output")
    output_type = NativeOutput(City) if is_native else City
    return {"parsed": Agent(setup.model, output_type=output_type).run_sync(PROMPT).output.model_dump()}


def read(title: str) -> str:
    """Reads a note.

    Args:
        title: The title of the note.
    """
    try:
        return read_note(title)
    except ValueError as error:
        raise ModelRetry(str(error)) from error


read.__name__ = "read_note"
