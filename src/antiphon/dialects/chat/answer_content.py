"""Lists the literal content of chat chunks and whole chat answers, for the relay to chat clients.

Only the first choice is compared, because only it is translated. Frames of other choices pass with it. Content in
parts, which a few servers send, is translated: clients of the official SDK cannot read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from antiphon import sse
from antiphon.dialects.chat.wire import STREAM_OPTIONS, ChatWire
from antiphon.dialects.common.relay import (
    EMPTY_FINISH,
    FINISH,
    UNREADABLE,
    ContentLevel,
    LiteralContent,
    Piece,
    add_missing,
    call_piece,
    replace_model,
    text_piece,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class AnswerContent(LiteralContent):
    """The content of one answer."""

    last_frame = sse.Frame("", sse.DONE)
    levels = (
        ContentLevel(frozenset({"choices", "object"}), "choices"),
        ContentLevel(frozenset({"message", "delta", "finish_reason"}), "message"),
        ContentLevel(
            frozenset({"role", "content", "refusal", "tool_calls", "function_call", "annotations"})
            | {"reasoning", "reasoning_content", "reasoning_details"}
        ),
    )
    keeps_frame_members = True

    def __init__(self, request: Request, wire: ChatWire, response: Response, model: str | None) -> None:
        self._wants_usage = wants_usage(request)
        self._hides_usage = wire.stream_usage and not self._wants_usage  # the gateway always asks for usage
        self._is_streamed = bool(request.stream)
        self._required_members: dict[str, Any] = {
            "id": completion_id(response),
            "object": "chat.completion.chunk" if self._is_streamed else "chat.completion",
            "created": response.created_at,
            "model": response.model,
            "choices": [],
        }
        self._model = model
        self._annotation_count = 0
        self._call_numbers: dict[int, int] = {}  # by index
        self._frame_members: dict[str, Any] = {}  # of the server's chunks, beside their content
        self._choice_members: dict[str, Any] = {}  # of the first choice in them
        self._usage: dict[str, Any] | None = None

    def pieces(self, value: Any) -> list[Piece] | None:
        choices = value.get("choices")
        if self._hides_usage and choices == [] and value.get("usage"):
            return None
        pieces: list[Piece] = [] if value.get("error") is None else [UNREADABLE]
        for choice in choices or ():
            if not isinstance(choice, dict):
                pieces.append(UNREADABLE)
            elif not choice.get("index"):
                pieces += self._choice_pieces(choice)
        return pieces

    def complete(self, value: Any) -> bool:
        has_model = replace_model(value, "model", self._model)
        has_changed = False
        for position, choice in enumerate(value.get("choices") or ()):
            has_changed |= add_missing(choice, {"index": position})
            has_changed |= self._number_annotations(choice.get("delta") or {})
        return add_missing(value, self._required_members) or has_changed or has_model

    def note_members(self, value: dict[str, Any]) -> None:
        self._frame_members |= {name: member for name, member in value.items() if name not in FRAME_CONTENT}
        if isinstance(value.get("usage"), dict) and not self._hides_usage:
            self._usage = value["usage"]
        for choice in value.get("choices") or ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._choice_members |= {name: choice[name] for name in choice.keys() - CHOICE_CONTENT}

    def continue_from(self, position: Any, translation: bytes) -> bytes:
        """The chunks of the translation with the members of the server's chunks. The last one of the answer has the
        usage that the server sent without being asked, and the members of its choice."""
        del position
        if not self._frame_members:
            return translation
        return b"".join([sse.encode_data(self._with_members(frame.data)) for frame in sse.Decoder().feed(translation)])

    def _with_members(self, data: bytes) -> bytes:
        chunk = None if data == sse.DONE else msgspec.json.decode(data)
        if chunk is None or "choices" not in chunk:  # the end of the stream, or an error
            return data
        chunk |= self._frame_members
        replace_model(chunk, "model", self._model)
        if not chunk["choices"]:
            chunk["usage"] = self._usage or chunk["usage"]
        elif chunk["choices"][0].get("finish_reason"):
            chunk["choices"][0] |= self._choice_members
            if self._usage is not None and not self._wants_usage:
                chunk["usage"] = self._usage
        return msgspec.json.encode(chunk)

    def _number_annotations(self, delta: dict[str, Any]) -> bool:
        """Clients join annotations of several chunks by their numbers, which some servers leave out."""
        annotations = delta.get("annotations") or []
        is_changed = [
            add_missing(annotation, {"index": number})
            for number, annotation in enumerate(annotations, self._annotation_count)
        ]
        self._annotation_count += len(annotations)
        return any(is_changed)

    def _choice_pieces(self, choice: dict[str, Any]) -> Iterator[Piece]:
        # Some servers send both. In a stream, the message then repeats all text so far.
        is_whole = "message" in choice and not (self._is_streamed and "delta" in choice)
        message = choice.get("message" if is_whole else "delta")
        if isinstance(message, dict):
            yield from _reasoning_pieces(message)
            yield text_piece("text", message.get("content"))
            if message.get("refusal"):
                yield text_piece("refusal", message["refusal"])
            for position, call in enumerate(message.get("tool_calls") or ()):
                yield from self._call_pieces(call, position if is_whole else call.get("index"))
            if message.get("function_call"):
                yield UNREADABLE  # the form before `tool_calls` has no ids
        elif message is not None:
            yield UNREADABLE
        if choice.get("finish_reason"):
            yield FINISH
        elif choice.get("finish_reason") == "":
            yield EMPTY_FINISH

    def _call_pieces(self, call: dict[str, Any], index: Any) -> Iterator[Piece]:
        called = call.get("function") or call.get("custom") or {}
        if index not in self._call_numbers:
            self._call_numbers[index] = len(self._call_numbers)
            is_named = call.get("id") and called.get("name")
            yield call_piece(self._call_numbers[index], call["id"], called["name"]) if is_named else UNREADABLE
        elif called.get("name"):
            yield UNREADABLE  # the name comes in pieces
        yield text_piece("arguments", called.get("arguments", called.get("input")), self._call_numbers[index])


def completion_id(response: Response) -> str:
    """The id of the answer in the gateway's own chat answers."""
    return f"chatcmpl-{response.id}"


def wants_usage(request: Request) -> bool:
    """Whether a chat client asked for usage in the stream."""
    options = (request.extra or {}).get(STREAM_OPTIONS, msgspec.Raw(b"null"))
    match msgspec.json.decode(options):
        case {"include_usage": True}:
            return True
        case _:
            return False


def _reasoning_pieces(message: dict[str, Any]) -> Iterator[Piece]:
    text = message.get("reasoning_content") or message.get("reasoning")
    if text:
        yield text_piece("reasoning", text)
        return
    for detail in message.get("reasoning_details") or ():
        yield text_piece("reasoning", detail.get("text") or detail.get("summary"))


#: Members of a chunk with its content or its end, which the translation has.
FRAME_CONTENT: Final = frozenset({"choices", "usage", "error", "object"})
CHOICE_CONTENT: Final = frozenset({"index", "delta", "message", "finish_reason", "logprobs"})
