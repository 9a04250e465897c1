"""openai-agents, with the model of the set-up, and its session if it has one."""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from task import PROMPT, City, read_note

set_tracing_disabled(True)


def plain(setup, model):
    return {"text": _run(setup, [])[0]}


def streamed(setup, model):
    async def read():
        result = Runner.run_streamed(Agent("lab", model=setup.model), PROMPT, **_session(setup))
        pieces = []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                pieces.append(event.data.delta)
        return {"text": result.final_output, "pieces": pieces}

    return asyncio.run(read())


def tool(setup, model):
    text, items = _run(setup, [function_tool(read_note, failure_error_function=lambda _, error: f"Error: {error}")])
    raw = [item.raw_item for item in items if item.type == "reasoning_item"]
    texts = [part.text for item in raw for part in [*(item.content or ()), *(item.summary or ())]]
    return {"text": text, "reasoning": "".join(texts)}


failed_tool = reasoning = tool


def structured(setup, model):
    return {"parsed": _run(setup, [], output_type=City)[0].model_dump()}


def _run(setup, tools, **options):
    async def run():
        agent = Agent("lab", model=setup.model, tools=tools, **options)
        result = await Runner.run(agent, PROMPT, **_session(setup))
        return result.final_output, result.new_items

    return asyncio.run(run())


def _session(setup):
    return {"session": setup.session} if hasattr(setup, "session") else {}
