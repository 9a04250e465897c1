"""The official `ollama` SDK as a client of Ollama's own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import httpx2
import ollama
from tests.matrix.neutral import (
    ABOUT_TOOL,
    PIXEL_BYTES,
    SCHEMA,
    TOOL,
    Answer,
    Asked,
    Call,
    Failed,
    Result,
    Said,
    Stop,
    Text,
    Thought,
    Usage,
    Weather,
)


class OllamaClient:
    """Sends the messages of answers back as they came. The SDK drops the ids of calls."""

    def __init__(self, sdk: ollama.Client) -> None:
        self._sdk = sdk

    def begin(self, model: str, asked: Asked) -> None:
        images = {"images": [PIXEL_BYTES]} if asked.image else {}
        self._messages: list[Any] = [{"role": "user", "content": asked.text, **images}]
        self._settings: dict[str, Any] = {"model": model}
        self._is_structured = asked.structured
        if asked.tools:
            function = {"name": TOOL, "description": ABOUT_TOOL, "parameters": SCHEMA}
            self._settings["tools"] = [{"type": "function", "function": function}]
        if asked.thinks:
            self._settings["think"] = "high"
        if asked.structured:
            self._settings["format"] = Weather.model_json_schema()

    def move(self, model: str) -> None:
        self._settings["model"] = model

    def give(self, results: list[Result]) -> None:
        for result in results:
            self._messages.append({"role": "tool", "tool_name": result.name, "content": result.text})
            if result.shows:  # results of this API are text: its clients send the image after them
                self._messages.append({"role": "user", "content": "", "images": [PIXEL_BYTES]})

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        pieces: list[str] = []
        try:
            answer = (
                self._streamed(pieces, on_text)
                if streams
                else self._sdk.chat(messages=self._messages, stream=False, **self._settings)
            )
        except (ollama.ResponseError, httpx2.HTTPError) as error:
            raise Failed(error, "".join(pieces)) from error
        self._messages.append(answer.message)
        return self._answer_of(answer)

    def _streamed(self, pieces: list[str], on_text: Callable[[], None]) -> ollama.ChatResponse:
        parts: list[ollama.ChatResponse] = []
        for part in self._sdk.chat(messages=self._messages, stream=True, **self._settings):
            parts.append(part)
            if part.message.content:
                pieces.append(part.message.content)
                on_text()
        whole = parts[-1]
        whole.message.content = "".join(pieces)
        whole.message.thinking = "".join(part.message.thinking or "" for part in parts)
        whole.message.tool_calls = [call for part in parts for call in part.message.tool_calls or ()]
        return whole

    def _answer_of(self, answer: ollama.ChatResponse) -> Answer:
        message = answer.message
        said: list[Said] = [Thought(message.thinking)] if message.thinking else []
        if message.content:
            said.append(Text(message.content))
        said += [Call("", call.function.name, call.function.arguments) for call in message.tool_calls or ()]
        stop: Stop = STOPS[answer.done_reason or ""]
        if stop == "end" and message.tool_calls:
            stop = "calls"
        parsed = Weather.model_validate_json(message.content or "").model_dump() if self._is_structured else None
        usage = Usage(answer.prompt_eval_count or 0, 0, answer.eval_count or 0, 0)
        return Answer(said=said, stop=stop, usage=usage, parsed=parsed)


STOPS: Final[dict[str, Stop]] = {"stop": "end", "length": "length"}
