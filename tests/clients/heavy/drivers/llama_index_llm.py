"""LlamaIndex, with the LLM of the set-up."""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ThinkingBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from task import PROMPT, City, read_note

MESSAGES = [ChatMessage(role="user", content=PROMPT)]


def plain(setup, model):
    return {"text": setup.model.chat(MESSAGES).message.content}


def streamed(setup, model):
    pieces = [part.delta for part in setup.model.stream_chat(MESSAGES) if part.delta]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    async def run():
        return await FunctionAgent(tools=[read_note], llm=setup.model).run(PROMPT)

    return {"text": str(asyncio.run(run()))}


failed_tool = tool


def reasoning(setup, model):
    """The loop of an agent does not show its messages."""
    offered = FunctionTool.from_defaults(read_note)
    messages = [*MESSAGES]
    texts = []
    while True:
        response = setup.model.chat_with_tools([offered], chat_history=messages)
        messages.append(response.message)
        texts += [block.content or "" for block in response.message.blocks if isinstance(block, ThinkingBlock)]
        calls = setup.model.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        if not calls:
            return {"text": response.message.content, "reasoning": "".join(texts)}
        for call in calls:
            output = str(offered.call(**call.tool_kwargs))
            messages.append(ChatMessage(role="tool", content=output, additional_kwargs={"tool_call_id": call.tool_id}))


def structured(setup, model):
    return {"parsed": setup.model.as_structured_llm(City).chat(MESSAGES).raw.model_dump()}
