"""The google-genai SDK for Python, which calls Python functions by itself."""

from __future__ import annotations

from task import PROMPT, City, read_note


def plain(setup, model):
    return {"text": setup.client.models.generate_content(model=model, contents=PROMPT).text}


def streamed(setup, model):
    pieces = [chunk.text for chunk in setup.client.models.generate_content_stream(model=model, contents=PROMPT)]
    pieces = [piece for piece in pieces if piece]
    return {"text": "".join(pieces), "pieces": pieces}


def tool(setup, model):
    config = {"tools": [read_note], "thinking_config": {"include_thoughts": True}}
    response = setup.client.models.generate_content(model=model, contents=PROMPT, config=config)
    contents = [*(response.automatic_function_calling_history or ()), response.candidates[0].content]
    thoughts = [part.text for content in contents for part in content.parts or () if part.thought]
    return {"text": response.text, "reasoning": "".join(thoughts)}


failed_tool = reasoning = tool


def structured(setup, model):
    config = {"response_mime_type": "application/json", "response_schema": City}
    response = setup.client.models.generate_content(model=model, contents=PROMPT, config=config)
    return {"parsed": response.parsed.model_dump()}
