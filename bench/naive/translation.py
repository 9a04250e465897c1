"""The naive gateway's translation, written the usual way: a model for each event, a dump for each model."""

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
    Whole,
)


class Translation:
    """One request and its answer."""

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
        self._open: Item | None = None
        self._text = ""

    def chat_request(self) -> dict[str, Any]:
        asked = self._request
        chat: dict[str, Any] = {"model": asked.model, "messages": self._messages(), "stream": asked.stream}
        if asked.stream:
            chat["stream_options"] = {"include_usage": True}
        if asked.tools:
            chat["tools"] = [
                {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
                for tool in asked.tools
            ]
            chat["tool_choice"] = asked.tool_choice
        settings = {"temperature": asked.temperature, "top_p": asked.top_p, "max_tokens": asked.max_output_tokens}
        return chat | {name: value for name, value in settings.items() if value is not None}

    def whole(self, body: bytes) -> ResponseObject:
        answer = Whole.model_validate_json(body)
        self._note_usage(answer.usage)
        part = OutputText(text=answer.choices[0].message.content or "")
        self._response.output = [Message(id=_id("msg"), role="assistant", status="completed", content=[part])]
        self._response.status = "completed"
        return self._response

    def begin(self) -> Iterator[str]:
        yield self._say(ResponseEvent(type="response.created", sequence_number=self._next(), response=self._response))
        yield self._say(
            ResponseEvent(type="response.in_progress", sequence_number=self._next(), response=self._response)
        )

    def feed(self, line: str) -> Iterator[str]:
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data == "[DONE]":
            yield from self._close()
            self._response.status = "completed"
            yield self._say(
                ResponseEvent(type="response.completed", sequence_number=self._next(), response=self._response)
            )
            yield "data: [DONE]\n\n"
            return
        chunk = Chunk.model_validate_json(data)
        self._note_usage(chunk.usage)
        for choice in chunk.choices:
            if choice.delta.reasoning_content:
                yield from self._reasoning(choice.delta.reasoning_content)
            if choice.delta.content:
                yield from self._message(choice.delta.content)
            for call in choice.delta.tool_calls or []:
                yield from self._call(call)

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

    def _message(self, delta: str) -> Iterator[str]:
        if not isinstance(self._open, Message):
            message = Message(id=_id("msg"), role="assistant", status="in_progress", content=[])
            yield from self._begin(message)
            yield self._part("response.content_part.added", "")
        yield self._delta("response.output_text.delta", delta)

    def _reasoning(self, delta: str) -> Iterator[str]:
        if not isinstance(self._open, Reasoning):
            yield from self._begin(Reasoning(id=_id("rs")))
        yield self._delta("response.reasoning.delta", delta)

    def _call(self, call: ChunkCall) -> Iterator[str]:
        if call.id is not None:
            name = call.function.name or ""
            yield from self._begin(
                FunctionCall(id=_id("fc"), call_id=call.id, name=name, arguments="", status="in_progress")
            )
        if call.function.arguments:
            yield self._delta("response.function_call_arguments.delta", call.function.arguments)

    def _begin(self, item: Item) -> Iterator[str]:
        yield from self._close()
        self._open, self._text = item, ""
        self._response.output.append(item)
        yield self._item("response.output_item.added", item)

    def _close(self) -> Iterator[str]:
        item = self._open
        if item is None:
            return
        where: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        if isinstance(item, Message):
            done = TextDoneEvent(
                type="response.output_text.done", sequence_number=self._next(), text=self._text, **where
            )
            yield self._say(done)
            yield self._part("response.content_part.done", self._text)
            item.content, item.status = [OutputText(text=self._text)], "completed"
        elif isinstance(item, FunctionCall):
            kind = "response.function_call_arguments.done"
            yield self._say(ArgumentsDoneEvent(type=kind, sequence_number=self._next(), arguments=self._text, **where))
            item.arguments, item.status = self._text, "completed"
        else:
            yield self._say(
                TextDoneEvent(type="response.reasoning.done", sequence_number=self._next(), text=self._text, **where)
            )
            item.content = [{"type": "reasoning_text", "text": self._text}]
        yield self._item("response.output_item.done", item)
        self._open = None

    def _delta(self, kind: str, delta: str) -> str:
        assert self._open is not None
        assert self._open.id is not None
        self._text += delta
        number = self._next()
        return self._say(
            DeltaEvent(type=kind, sequence_number=number, item_id=self._open.id, output_index=self._index, delta=delta)
        )

    def _part(self, kind: str, text: str) -> str:
        assert self._open is not None
        assert self._open.id is not None
        part = OutputText(text=text)
        number = self._next()
        return self._say(
            PartEvent(type=kind, sequence_number=number, item_id=self._open.id, output_index=self._index, part=part)
        )

    def _item(self, kind: str, item: Item) -> str:
        return self._say(ItemEvent(type=kind, sequence_number=self._next(), output_index=self._index, item=item))

    def _say(self, event: Event) -> str:
        return f"event: {event.type}\ndata: {event.model_dump_json()}\n\n"

    @property
    def _index(self) -> int:
        return len(self._response.output) - 1

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _note_usage(self, usage: ChatUsage | None) -> None:
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
