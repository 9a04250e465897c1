"""The translation of the naive gateway, in the usual way: one model per event, one dump per model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from bench.naive.shapes import (
    ArgumentsDoneEvent,
    ChatUsage,
    Chunk,
    ChunkCall,
    Completion,
    CreateResponse,
    DeltaEvent,
    Event,
    FunctionCall,
    Item,
    ItemEvent,
    Message,
    OutputText,
    PartEvent,
    Reasoning,
    ResponseEvent,
    ResponseObject,
    TextDoneEvent,
    Usage,
)


class Translation:
    """Translates one request and its response."""

    def __init__(self, request: CreateResponse) -> None:
        self._request = request
        self._response = ResponseObject(
            id="resp_" + os.urandom(24).hex(),
            created_at=int(time.time()),
            status="in_progress",
            metadata=request.metadata or {},
            **request.model_dump(exclude={"input", "stream", "metadata"}),
        )
        self._number = -1
        self._open_item: Item | None = None
        self._text = ""

    def chat_request(self) -> dict[str, Any]:
        request = self._request
        chat: dict[str, Any] = {"model": request.model, "messages": self._messages(), "stream": request.stream}
        if request.stream:
            chat["stream_options"] = {"include_usage": True}
        if request.tools:
            chat["tools"] = [
                {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
                for tool in request.tools
            ]
            chat["tool_choice"] = request.tool_choice
        settings = {"temperature": request.temperature, "top_p": request.top_p, "max_tokens": request.max_output_tokens}
        return chat | {name: value for name, value in settings.items() if value is not None}

    def translate_completion(self, body: bytes) -> ResponseObject:
        completion = Completion.model_validate_json(body)
        self._set_usage(completion.usage)
        part = OutputText(text=completion.choices[0].message.content or "")
        self._response.output = [Message(id=_id("msg"), role="assistant", status="completed", content=[part])]
        self._response.status = "completed"
        return self._response

    def start(self) -> Iterator[str]:
        yield self._encode_event(
            ResponseEvent(type="response.created", sequence_number=self._next_number(), response=self._response)
        )
        yield self._encode_event(
            ResponseEvent(type="response.in_progress", sequence_number=self._next_number(), response=self._response)
        )

    def feed(self, line: str) -> Iterator[str]:
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data == "[DONE]":
            yield from self._close_open_item()
            self._response.status = "completed"
            yield self._encode_event(
                ResponseEvent(type="response.completed", sequence_number=self._next_number(), response=self._response)
            )
            yield "data: [DONE]\n\n"
            return
        chunk = Chunk.model_validate_json(data)
        self._set_usage(chunk.usage)
        for choice in chunk.choices:
            if choice.delta.reasoning_content:
                yield from self._feed_reasoning(choice.delta.reasoning_content)
            if choice.delta.content:
                yield from self._feed_text(choice.delta.content)
            for call in choice.delta.tool_calls or []:
                yield from self._feed_call(call)

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self._request.instructions:
            messages.append({"role": "system", "content": self._request.instructions})
        if isinstance(self._request.input, str):
            return [*messages, {"role": "user", "content": self._request.input}]
        for item in self._request.input:
            if isinstance(item, Message):
                text = item.content if isinstance(item.content, str) else "".join(part.text for part in item.content)
                messages.append({"role": item.role, "content": text})
            elif isinstance(item, FunctionCall):
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            else:
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.output})
        return messages

    def _feed_text(self, delta: str) -> Iterator[str]:
        if not isinstance(self._open_item, Message):
            message = Message(id=_id("msg"), role="assistant", status="in_progress", content=[])
            yield from self._open_new_item(message)
            yield self._part_event("response.content_part.added", "")
        yield self._delta_event("response.output_text.delta", delta)

    def _feed_reasoning(self, delta: str) -> Iterator[str]:
        if not isinstance(self._open_item, Reasoning):
            yield from self._open_new_item(Reasoning(id=_id("rs")))
        yield self._delta_event("response.reasoning.delta", delta)

    def _feed_call(self, call: ChunkCall) -> Iterator[str]:
        if call.id is not None:
            name = call.function.name or ""
            yield from self._open_new_item(
                FunctionCall(id=_id("fc"), call_id=call.id, name=name, arguments="", status="in_progress")
            )
        if call.function.arguments:
            yield self._delta_event("response.function_call_arguments.delta", call.function.arguments)

    def _open_new_item(self, item: Item) -> Iterator[str]:
        yield from self._close_open_item()
        self._open_item, self._text = item, ""
        self._response.output.append(item)
        yield self._item_event("response.output_item.added", item)

    def _close_open_item(self) -> Iterator[str]:
        item = self._open_item
        if item is None:
            return
        position: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        if isinstance(item, Message):
            done = TextDoneEvent(
                type="response.output_text.done", sequence_number=self._next_number(), text=self._text, **position
            )
            yield self._encode_event(done)
            yield self._part_event("response.content_part.done", self._text)
            item.content, item.status = [OutputText(text=self._text)], "completed"
        elif isinstance(item, FunctionCall):
            event_type = "response.function_call_arguments.done"
            yield self._encode_event(
                ArgumentsDoneEvent(
                    type=event_type, sequence_number=self._next_number(), arguments=self._text, **position
                )
            )
            item.arguments, item.status = self._text, "completed"
        else:
            yield self._encode_event(
                TextDoneEvent(
                    type="response.reasoning.done", sequence_number=self._next_number(), text=self._text, **position
                )
            )
            item.content = [{"type": "reasoning_text", "text": self._text}]
        yield self._item_event("response.output_item.done", item)
        self._open_item = None

    def _delta_event(self, event_type: str, delta: str) -> str:
        assert self._open_item is not None
        assert self._open_item.id is not None
        self._text += delta
        number = self._next_number()
        return self._encode_event(
            DeltaEvent(
                type=event_type,
                sequence_number=number,
                item_id=self._open_item.id,
                output_index=self._index,
                delta=delta,
            )
        )

    def _part_event(self, event_type: str, text: str) -> str:
        assert self._open_item is not None
        assert self._open_item.id is not None
        part = OutputText(text=text)
        number = self._next_number()
        return self._encode_event(
            PartEvent(
                type=event_type, sequence_number=number, item_id=self._open_item.id, output_index=self._index, part=part
            )
        )

    def _item_event(self, event_type: str, item: Item) -> str:
        return self._encode_event(
            ItemEvent(type=event_type, sequence_number=self._next_number(), output_index=self._index, item=item)
        )

    def _encode_event(self, event: Event) -> str:
        return f"event: {event.type}\ndata: {event.model_dump_json()}\n\n"

    @property
    def _index(self) -> int:
        return len(self._response.output) - 1

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _set_usage(self, usage: ChatUsage | None) -> None:
        if usage is not None:
            self._response.usage = Usage(
                input_tokens=usage.prompt_tokens,
                input_tokens_details={"cached_tokens": (usage.prompt_tokens_details or {}).get("cached_tokens", 0)},
                output_tokens=usage.completion_tokens,
                output_tokens_details={
                    "reasoning_tokens": (usage.completion_tokens_details or {}).get("reasoning_tokens", 0)
                },
                total_tokens=usage.total_tokens,
            )


def _id(prefix: str) -> str:
    return f"{prefix}_{os.urandom(24).hex()}"
