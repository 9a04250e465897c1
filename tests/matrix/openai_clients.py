"""The official `openai` SDK as a client of two APIs, Responses and Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
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

PNG = f"data:image/png;base64,{PIXEL}"


class ResponsesClient:
    """Sends the whole history each time, and asks for what is sealed."""

    def __init__(self, url: str, http: httpx2.Client) -> None:
        self._sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http)

    def begin(self, model: str, asked: Asked) -> None:
        content: list[Any] = [{"type": "input_text", "text": asked.text}]
        if asked.image:
            content.append({"type": "input_image", "image_url": PNG, "detail": "auto"})
        self._input: list[Any] = [{"role": "user", "content": content}]
        self._settings: dict[str, Any] = {"model": model, "store": False, "include": ["reasoning.encrypted_content"]}
        if asked.tools:
            tool = {"type": "function", "name": TOOL, "description": ABOUT_TOOL, "parameters": SCHEMA, "strict": True}
            self._settings["tools"] = [tool]
        if asked.thinks:
            self._settings["reasoning"] = {"effort": "high"}
        if asked.structured:
            self._settings["text_format"] = Weather

    def move(self, model: str) -> None:
        self._settings["model"] = model

    def give(self, results: list[Result]) -> None:
        for result in results:
            shown = [
                {"type": "input_text", "text": result.text},
                {"type": "input_image", "image_url": PNG, "detail": "auto"},
            ]
            output = shown if result.shows else result.text
            self._input.append({"type": "function_call_output", "call_id": result.id, "output": output})

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        pieces: list[str] = []
        try:
            response = (
                self._streamed(pieces, on_text)
                if streams
                else self._sdk.responses.parse(input=self._input, **self._settings)
            )
        except openai.APIError as error:
            raise Failed(error, "".join(pieces)) from error
        if response.error is not None:
            raise Failed(RuntimeError(response.error.message), "".join(pieces))
        # The SDK's own fields of what it has parsed are no fields of the API.
        parsed_too: Any = {"parsed_arguments": True, "content": {"__all__": {"parsed"}}}
        self._input += [item.model_dump(exclude_unset=True, exclude=parsed_too) for item in response.output]
        return _answer_of_response(response)

    def _streamed(self, pieces: list[str], on_text: Callable[[], None]) -> Any:
        with self._sdk.responses.stream(input=self._input, **self._settings) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    pieces.append(event.delta)
                    on_text()
                elif event.type in (
                    "response.failed",
                    "response.incomplete",
                ):  # the SDK's own final response is a completed one
                    return event.response
            return stream.get_final_response()


class ChatClient:
    """Sends a message back with everything that it had, fields that the SDK does not know among them."""

    def __init__(self, url: str, http: httpx2.Client) -> None:
        self._sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http)

    def begin(self, model: str, asked: Asked) -> None:
        content: list[Any] = [{"type": "text", "text": asked.text}]
        if asked.image:
            content.append({"type": "image_url", "image_url": {"url": PNG}})
        self._messages: list[Any] = [{"role": "user", "content": content}]
        self._settings: dict[str, Any] = {"model": model}
        if asked.tools:
            function = {"name": TOOL, "description": ABOUT_TOOL, "parameters": SCHEMA, "strict": True}
            self._settings["tools"] = [{"type": "function", "function": function}]
        if asked.thinks:
            self._settings["reasoning_effort"] = "high"
        if asked.structured:
            self._settings["response_format"] = Weather

    def move(self, model: str) -> None:
        self._settings["model"] = model

    def give(self, results: list[Result]) -> None:
        for result in results:
            # The API's maker has no images in results; many of its servers do, and clients send them so.
            shown = [{"type": "text", "text": result.text}, {"type": "image_url", "image_url": {"url": PNG}}]
            content = shown if result.shows else result.text
            self._messages.append({"role": "tool", "tool_call_id": result.id, "content": content})

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        pieces: list[str] = []
        try:
            if streams:
                completion = self._streamed(pieces, on_text)
            else:
                completion = self._sdk.chat.completions.parse(messages=self._messages, **self._settings)
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as cut:
            completion = cut.completion  # that the SDK will not parse
        except openai.APIError as error:
            raise Failed(error, "".join(pieces)) from error
        message = completion.choices[0].message.model_dump(exclude_unset=True, exclude={"parsed"})
        for call in message.get("tool_calls") or ():
            call["function"].pop("parsed_arguments", None)
        self._messages.append(message)
        return _answer_of_completion(completion)

    def _streamed(self, pieces: list[str], on_text: Callable[[], None]) -> Any:
        settings = {**self._settings, "stream_options": {"include_usage": True}}
        with self._sdk.chat.completions.stream(messages=self._messages, **settings) as stream:
            for event in stream:
                if event.type == "content.delta":
                    pieces.append(event.delta)
                    on_text()
            return stream.get_final_completion()


def _answer_of_response(response: Any) -> Answer:
    said: list[Said] = []
    for item in response.output:
        match item.type:
            case "reasoning":
                said += [Thought(part.text) for part in item.content or item.summary]
            case "message":
                said += [Refusal(part.refusal) if part.type == "refusal" else Text(part.text) for part in item.content]
            case _:
                said.append(Call(item.call_id, item.name, json.loads(item.arguments)))
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    stop: Stop = _STOPS.get(reason) or _stop_of(said)
    counted = response.usage
    usage = counted and Usage(
        counted.input_tokens,
        counted.input_tokens_details.cached_tokens,
        counted.output_tokens,
        counted.output_tokens_details.reasoning_tokens,
    )
    assert usage is None or counted.total_tokens == usage.input + usage.output
    assert (response.status == "completed") is not bool(reason)
    parsed = getattr(response, "output_parsed", None)
    return Answer(said=refused(said, stop), stop=stop, usage=usage, parsed=parsed and parsed.model_dump())


def _answer_of_completion(completion: Any) -> Answer:
    [choice] = completion.choices
    message = choice.message
    said: list[Said] = []
    if thought := getattr(message, "reasoning_content", None):
        said.append(Thought(thought))
    if message.content:
        said.append(Text(message.content))
    if message.refusal:
        said.append(Refusal(message.refusal))
    said += [
        Call(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()
    ]
    stop: Stop = _STOPS.get(choice.finish_reason) or _stop_of(said)
    counted = completion.usage
    usage = counted and Usage(
        counted.prompt_tokens,
        counted.prompt_tokens_details.cached_tokens,
        counted.completion_tokens,
        counted.completion_tokens_details.reasoning_tokens,
    )
    assert usage is None or counted.total_tokens == usage.input + usage.output
    assert (choice.finish_reason == "tool_calls") is (stop == "calls")
    parsed = getattr(message, "parsed", None)
    return Answer(said=refused(said, stop), stop=stop, usage=usage, parsed=parsed and parsed.model_dump())


def refused(said: list[Said], stop: Stop) -> list[Said]:
    """Where a refusal is told by the reason to stop alone, its words come as text."""
    return [Refusal(each.text) if stop == "refusal" and isinstance(each, Text) else each for each in said]


def _stop_of(said: list[Said]) -> Stop:
    if any(isinstance(each, Refusal) for each in said):
        return "refusal"
    return "calls" if any(isinstance(each, Call) for each in said) else "end"


_STOPS: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal", "length": "length"}
