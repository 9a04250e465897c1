"""The official `anthropic` SDK as a client of the Messages API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
from tests.matrix.neutral import (
    ABOUT_TOOL,
    PIXEL,
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

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}


class MessagesClient:
    """Sends the blocks of an answer back as they came."""

    def __init__(self, url: str, http: httpx2.Client) -> None:
        self._sdk = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, http_client=http)

    def begin(self, model: str, asked: Asked) -> None:
        content: list[Any] = [{"type": "text", "text": asked.text}, *([IMAGE] if asked.image else [])]
        self._messages: list[Any] = [{"role": "user", "content": content}]
        self._settings: dict[str, Any] = {"model": model, "max_tokens": 1000}
        if asked.tools:
            self._settings["tools"] = [
                {"name": TOOL, "description": ABOUT_TOOL, "input_schema": SCHEMA, "strict": True}
            ]
        if asked.thinks:
            self._settings |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
        if asked.structured:
            self._settings["output_format"] = Weather

    def move(self, model: str) -> None:
        self._settings["model"] = model

    def give(self, results: list[Result]) -> None:
        blocks: list[Any] = []
        for result in results:
            content = [{"type": "text", "text": result.text}, IMAGE] if result.shows else result.text
            blocks.append({"type": "tool_result", "tool_use_id": result.id, "content": content})
        self._messages.append({"role": "user", "content": blocks})

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        pieces: list[str] = []
        try:
            message = (
                self._streamed(pieces, on_text)
                if streams
                else self._sdk.messages.parse(messages=self._messages, **self._settings)
            )
        except anthropic.APIError as error:
            raise Failed(error, "".join(pieces)) from error
        self._messages.append({"role": "assistant", "content": message.content})
        return _answer_of(message)

    def _streamed(self, pieces: list[str], on_text: Callable[[], None]) -> Any:
        with self._sdk.messages.stream(messages=self._messages, **self._settings) as stream:
            for text in stream.text_stream:
                pieces.append(text)
                on_text()
            return stream.get_final_message()


def _answer_of(message: Any) -> Answer:
    stop: Stop = STOPS[message.stop_reason]
    said: list[Said] = []
    for block in message.content:
        match block.type:
            case "thinking":
                said.append(Thought(block.thinking))
            case "text":
                said.append(Refusal(block.text) if stop == "refusal" else Text(block.text))
            case "tool_use":
                said.append(Call(block.id, block.name, block.input))
    counted = message.usage
    # What came from the cache is counted apart from the rest of the prompt here.
    cached = counted.cache_read_input_tokens or 0
    thoughts = counted.output_tokens_details.thinking_tokens if counted.output_tokens_details else 0
    usage = Usage(counted.input_tokens + cached, cached, counted.output_tokens, thoughts)
    parsed = message.parsed_output
    return Answer(said=said, stop=stop, usage=usage, parsed=parsed and parsed.model_dump())


STOPS: dict[str, Stop] = {"end_turn": "end", "tool_use": "calls", "max_tokens": "length", "refusal": "refusal"}
