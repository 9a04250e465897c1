"""LangChain, with the chat model of the set-up."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool as make_tool
from langchain_openai import ChatOpenAI
from task import PROMPT, City, read_note


def plain(setup, model):
    return {"text": setup.model.invoke(PROMPT).text}


def streamed(setup, model):
    pieces = [chunk.text for chunk in setup.model.stream(PROMPT)]
    pieces = [piece for piece in pieces if piece]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    offered = make_tool(read_note)
    caller = setup.model.bind_tools([offered], **_settings(setup.model))
    messages = [HumanMessage(PROMPT)]
    reasoning = ""
    while True:
        message = caller.invoke(messages)
        messages.append(message)
        blocks = [block for block in message.content_blocks if block["type"] == "reasoning"]
        reasoning += "".join(block.get("reasoning") or "" for block in blocks)
        if not message.tool_calls:
            return {"text": message.text, "reasoning": reasoning}
        for call in message.tool_calls:
            try:
                messages.append(offered.invoke(call))
            except ValueError as error:
                messages.append(ToolMessage(str(error), tool_call_id=call["id"], status="error"))


failed_tool = reasoning = tool


def _settings(model):
    """The Responses model shows summaries only. The chat model drops reasoning: the gateway restores it from stored
    answers."""
    if not isinstance(model, ChatOpenAI):
        return {}
    return {"reasoning": {"summary": "auto"}} if model.use_responses_api else {"store": True}


def structured(setup, model):
    return {"parsed": setup.model.with_structured_output(City).invoke(PROMPT).model_dump()}
