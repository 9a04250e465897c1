"""The official `google-genai` SDK as a client of the Gemini API. Its `chats` keep the history, as they do for its
users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types
from tests.matrix.neutral import (
    ABOUT_TOOL,
    PIXEL_BYTES,
    SCHEMA,
    TOOL,
    Answer,
    Asked,
    Call,
    Failed,
    Refusal,
    Result,
    Said,
    Stop,
    Text,
    Thought,
    Usage,
    Weather,
)


class GeminiClient:
    def __init__(self, url: str, http: httpx2.Client) -> None:
        options: Any = {"base_url": url, "httpx_client": http}
        self._sdk = genai.Client(api_key="any", http_options=options)

    def begin(self, model: str, asked: Asked) -> None:
        settings: dict[str, Any] = {}
        if asked.tools:
            offered = types.FunctionDeclaration(name=TOOL, description=ABOUT_TOOL, parameters_json_schema=SCHEMA)
            settings["tools"] = [types.Tool(function_declarations=[offered])]
        if asked.thinks:
            level = types.ThinkingLevel.HIGH
            settings["thinking_config"] = types.ThinkingConfig(include_thoughts=True, thinking_level=level)
        if asked.structured:
            settings |= {"response_mime_type": "application/json", "response_schema": Weather}
        self._config = types.GenerateContentConfig(**settings)
        self._chat = self._sdk.chats.create(model=model, config=self._config)
        image = types.Part.from_bytes(data=PIXEL_BYTES, mime_type="image/png")
        self._next: list[Any] = [types.Part(text=asked.text), *([image] if asked.image else [])]

    def move(self, model: str) -> None:
        history: Any = self._chat.get_history()
        self._chat = self._sdk.chats.create(model=model, config=self._config, history=history)

    def give(self, results: list[Result]) -> None:
        self._next = [types.Part(function_response=_response(result)) for result in results]

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        answers: list[types.GenerateContentResponse] = []
        try:
            if streams:
                for answer in self._chat.send_message_stream(self._next):
                    answers.append(answer)
                    on_text()
            else:
                answers.append(self._chat.send_message(self._next))
        except (errors.APIError, errors.UnknownApiResponseError) as error:
            raise Failed(error, "".join(answer.text or "" for answer in answers)) from error
        return _answer_of(answers)


def _response(result: Result) -> types.FunctionResponse:
    blob = types.FunctionResponseBlob(mime_type="image/png", data=PIXEL_BYTES)
    parts = [types.FunctionResponsePart(inline_data=blob)] if result.shows else None
    return types.FunctionResponse(id=result.id, name=result.name, response={"output": result.text}, parts=parts)


def _answer_of(answers: list[types.GenerateContentResponse]) -> Answer:
    said: list[Said] = []
    for answer in answers:
        for part in _parts_of(answer):
            if part.function_call is not None:
                call = part.function_call
                said.append(Call(call.id or "", call.name or "", call.args))
            elif part.text:
                _add(said, Thought(part.text) if part.thought else Text(part.text))
    reasons = [each.finish_reason.value for answer in answers for each in answer.candidates or () if each.finish_reason]
    stop: Stop = STOPS[reasons[-1]]
    if stop == "end" and any(isinstance(each, Call) for each in said):
        stop = "calls"
    if stop == "refusal":
        said = [Refusal(each.text) if isinstance(each, Text) else each for each in said]
    parsed = answers[-1].parsed if len(answers) == 1 else _parsed(said)
    found = parsed.model_dump() if isinstance(parsed, Weather) else None
    return Answer(said=said, stop=stop, usage=_usage_of(answers[-1]), parsed=found)


def _parts_of(answer: types.GenerateContentResponse) -> list[types.Part]:
    return [part for each in answer.candidates or () for part in (each.content and each.content.parts) or ()]


def _add(said: list[Said], new: Text | Thought) -> None:
    """Pieces of one text are one text."""
    last = said[-1] if said else None
    if isinstance(last, Text) and isinstance(new, Text):
        said[-1] = Text(last.text + new.text)
    elif isinstance(last, Thought) and isinstance(new, Thought):
        said[-1] = Thought(last.text + new.text)
    else:
        said.append(new)


def _usage_of(answer: types.GenerateContentResponse) -> Usage | None:
    counted = answer.usage_metadata
    if counted is None:
        return None
    # Thoughts are counted apart from what is said here, what came from the cache is not.
    prompt, thoughts = counted.prompt_token_count or 0, counted.thoughts_token_count or 0
    output = (counted.candidates_token_count or 0) + thoughts
    assert counted.total_token_count == prompt + output
    return Usage(prompt, counted.cached_content_token_count or 0, output, thoughts)


def _parsed(said: list[Said]) -> Weather | None:
    """The SDK parses whole answers; of a stream its users do it."""
    text = "".join(each.text for each in said if isinstance(each, Text))
    return Weather.model_validate_json(text) if text.startswith("{") else None


STOPS: dict[str, Stop] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "PROHIBITED_CONTENT": "refusal",
}
