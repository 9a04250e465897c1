"""`MessagesServer`: a strict server of the Messages API. It renders a turn as events or as one equivalent message.

The JSON is written by hand and shares no code with the dialect with which the gateway reads it. Real servers send one
block after the other; `Habit` names the deviations of others.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, Literal, assert_never, get_args

import msgspec
from msgspec.structs import replace

from antiphon import sse
from antiphon.testing.harness import FakeServer
from antiphon.testing.improvise import improvise
from antiphon.testing.messages import rules as messages_rules
from antiphon.testing.messages.errors import MessagesRequestRefused, error_event, messages_error
from antiphon.testing.messages.issued_thoughts import IssuedThoughts
from antiphon.testing.messages.prompt import make_prompt
from antiphon.testing.messages.rules import MessagesLimits
from antiphon.testing.rules import parse_json
from antiphon.testing.script import (
    End,
    Finish,
    Part,
    Pause,
    PlainReply,
    Raw,
    Reasoning,
    ReceivedRequest,
    Redacted,
    Refusal,
    Script,
    ScriptedTurn,
    ScriptedUsage,
    Step,
    Text,
    ToolCall,
    ToolCalls,
    Wait,
    interleave_pieces,
    usage_of,
    whole,
)

#: Deviations of nonconformant servers and gateways: they start the message twice, leave every block open until the end,
#: give every block the index 0, or put a call's input into the block's start and send no deltas.
Habit = Literal["second_start", "overlapping", "shared_index", "input_at_start"]


class MessagesServer(FakeServer):
    """`with MessagesServer([turn(text("Hel", "lo"))]) as server:`. Without a script it echoes and calls tools
    (`improvise`)."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
        max_chars: int | None = None,
        max_bytes: int = MessagesLimits().max_bytes,
        strict: bool = True,
        alternating: bool = True,
        system_messages: bool = False,
        thinking: Sequence[str] | None = None,
        habits: Collection[Habit] = (),
        port: int = 0,
    ) -> None:
        limits = MessagesLimits(
            key=key,
            models=None if models is None else tuple(models),
            max_chars=max_chars,
            max_bytes=max_bytes,
            strict=strict,
            alternating=alternating,
            system_messages=system_messages,
            thinking=None if thinking is None else tuple(thinking),
        )
        super().__init__(MessagesBehavior(limits, habits), script, port=port)


class MessagesBehavior:
    """The behaviour of this dialect. It does no IO."""

    def __init__(self, limits: MessagesLimits = MessagesLimits(), habits: Collection[Habit] = ()) -> None:  # noqa: B008
        self.thoughts = IssuedThoughts()
        self._limits = limits
        self._habits = habits
        self._response_numbers = itertools.count(1)

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        path = request.path.partition("?")[0]
        try:
            match request.method, path:
                case "POST", "/v1/messages":
                    return None
                case "POST", "/v1/messages/count_tokens":
                    body = messages_rules.check_count(request, self._limits, self.thoughts)
                    return whole({"input_tokens": messages_rules.prompt_chars(body) // 4 + 1})
                case "GET", "/v1/models":
                    messages_rules.check_key(request, self._limits)
                    return whole(_model_list(self._limits.models or ("mock-1",)))
                case _, "/v1/messages" | "/v1/messages/count_tokens" | "/v1/models":
                    return messages_error(405, f"{request.method} is not allowed on {path}")
                case _:
                    return messages_error(404, f"there is no {request.method} {path} here")
        except MessagesRequestRefused as refusal:
            return refusal.reply

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        try:
            messages_rules.check(request, self._limits, self.thoughts)
        except MessagesRequestRefused as refusal:
            return refusal.reply
        return None

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(request.json))

    def wants_stream(self, request: ReceivedRequest) -> bool:
        return bool(request.json.get("stream"))

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        steps = self._make_renderer(turn, request, self._habits).render()
        return [_frame(step) if isinstance(step, dict) else step for step in steps]

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        if _stop_reason(turn) == "error":
            return messages_error(500).body
        events = [step for step in self._make_renderer(turn, request, ()).render() if isinstance(step, dict)]
        return msgspec.json.encode(_fold_events(events))

    def _make_renderer(self, turn: ScriptedTurn, request: ReceivedRequest, habits: Collection[Habit]) -> _TurnRenderer:
        return _TurnRenderer(turn, request.json, f"msg_{next(self._response_numbers)}", self.thoughts, habits)


class _TurnRenderer:
    """Renders one turn as events. A new kind of content ends the current block and starts a new one."""

    def __init__(
        self, turn: ScriptedTurn, body: dict[str, Any], id: str, thoughts: IssuedThoughts, habits: Collection[Habit]
    ) -> None:
        self._turn = turn
        self._body = body
        self._id = id
        self._thoughts = thoughts
        self._habits = habits
        self._has_started = False
        self._block_count = 0
        self._open_blocks: list[int] = []
        self._is_in_text = False  # whether the newest block is text, to which more may be added
        self._steps: list[dict[str, Any] | Step] = []

    def render(self) -> list[dict[str, Any] | Step]:
        for element in self._turn.elements:
            match element:
                case Text() | Refusal():  # a refusal is text with a stop reason
                    self._add_text(element.pieces)
                case Reasoning():
                    self._add_reasoning(element)
                case Redacted():
                    self._thoughts.issue_redacted(element.data)
                    self._start_block({"type": "redacted_thinking", "data": element.data})
                case ToolCalls():
                    self._add_calls(element)
                case Raw():
                    self._steps.append(element.data)
                case Pause() | Wait() | End():
                    self._steps.append(element)
                case Finish() | ScriptedUsage():
                    pass  # rendered at the end
                case _ as never:
                    assert_never(never)
        self._end_message()
        return self._steps

    # Blocks.

    def _add_text(self, pieces: tuple[str, ...]) -> None:
        """Add to the current text block, or start a new one."""
        if not self._is_in_text:
            self._start_block({"type": "text", "text": ""})
            self._is_in_text = True
        for piece in pieces:
            self._add_delta(self._open_blocks[-1], {"type": "text_delta", "text": piece})

    def _add_reasoning(self, element: Reasoning) -> None:
        # `omitted`: only the signature is sent, without the text.
        is_shown = (self._body.get("thinking") or {}).get("display") != "omitted"
        pieces = element.pieces if is_shown else ()
        signature = self._thoughts.issue("".join(pieces), element.signature)
        self._start_block({"type": "thinking", "thinking": "", "signature": ""})
        for piece in pieces:
            self._add_delta(self._open_blocks[-1], {"type": "thinking_delta", "thinking": piece})
        self._add_delta(self._open_blocks[-1], {"type": "signature_delta", "signature": signature})

    def _add_calls(self, element: ToolCalls) -> None:
        """Render calls one after the other, as real servers do, unless the habit is `overlapping`."""
        for group in [element.calls] if "overlapping" in self._habits else [(call,) for call in element.calls]:
            calls_in_pieces = ToolCalls(tuple(replace(call, pieces=self._input_pieces(call)) for call in group))
            block_indexes: list[int] = []
            for index, _, piece in interleave_pieces(calls_in_pieces):
                if piece is None:
                    block_indexes.append(self._start_call(group[index]))
                else:
                    self._add_delta(block_indexes[index], {"type": "input_json_delta", "partial_json": piece})

    def _start_call(self, call: ToolCall) -> int:
        initial_input = _call_input(call) if "input_at_start" in self._habits else {}
        return self._start_block({"type": "tool_use", "id": call.id, "name": call.name, "input": initial_input})

    def _input_pieces(self, call: ToolCall) -> tuple[str, ...]:
        """Return the input in pieces. The first is always empty; an empty input has no others."""
        if "input_at_start" in self._habits:
            return ()
        if call.kind == "custom":  # custom tools are functions of one string here
            return ("", msgspec.json.encode(_call_input(call)).decode())
        return ("",) if parse_json("".join(call.pieces)) == {} else ("", *call.pieces)

    def _start_block(self, block: dict[str, Any]) -> int:
        self._ensure_message_start()
        if "overlapping" not in self._habits:
            self._close_blocks()
        index = 0 if "shared_index" in self._habits else self._block_count
        self._add_event("content_block_start", index=index, content_block=block)
        if self._block_count == 0:
            self._add_event("ping")
        self._block_count += 1
        self._open_blocks.append(index)
        self._is_in_text = False
        return index

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        self._add_event("content_block_delta", index=index, delta=delta)

    def _close_blocks(self) -> None:
        for index in self._open_blocks:
            self._add_event("content_block_stop", index=index)
        if self._open_blocks and "second_start" in self._habits and self._block_count == 1:
            self._start_message()
        self._open_blocks.clear()
        self._is_in_text = False

    # The message.

    def _ensure_message_start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._start_message()

    def _start_message(self) -> None:
        message: dict[str, Any] = {"id": self._id, "type": "message", "role": "assistant"}
        message |= {
            "model": self._body.get("model", "mock-1"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if "usage" not in self._turn.omit:
            message["usage"] = {**self._usage(), "output_tokens": 1}
        self._add_event("message_start", message=message)

    def _end_message(self) -> None:
        omit, reason = self._turn.omit, _stop_reason(self._turn)
        if len(set(omit)) < len(get_args(Part)):
            self._ensure_message_start()
        self._close_blocks()
        if reason == "error":
            self._steps.append(error_event())
            return
        # Stop reason and usage share an event, which is there as long as one of them is.
        if "finish" not in omit or "usage" not in omit:
            usage = {} if "usage" in omit else {"usage": self._usage()}
            self._add_event("message_delta", delta=self._stop_members(None if "finish" in omit else reason), **usage)
        if "done" not in omit:
            self._add_event("message_stop")

    def _stop_members(self, reason: str | None) -> dict[str, Any]:
        stop_sequences = self._body.get("stop_sequences") or [None]
        stop: dict[str, Any] = {
            "stop_reason": reason,
            "stop_sequence": stop_sequences[0] if reason == "stop_sequence" else None,
        }
        if reason == "refusal":
            stop["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        return stop

    def _usage(self) -> dict[str, Any]:
        """Return the usage as this API counts it: tokens of the cache are not part of the input tokens."""
        usage = usage_of(self._turn, messages_rules.prompt_chars(self._body))
        return {
            "input_tokens": usage.prompt - usage.cached - usage.cache_write,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.completion,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
        }

    def _add_event(self, type: str, **members: Any) -> None:
        self._steps.append({"type": type, **members})


def _call_input(call: ToolCall) -> dict[str, Any]:
    """Return the input of a call as an object, as this dialect requires."""
    arguments = "".join(call.pieces)
    value = {"input": arguments} if call.kind == "custom" else parse_json(arguments)
    return value if isinstance(value, dict) else {}


def _stop_reason(turn: ScriptedTurn) -> str:
    """Return the stop reason. Reasons of this dialect are used as they are; those of chat are translated."""
    reasons = [element.reason for element in turn.elements if isinstance(element, Finish)]
    if reasons:
        return STOP_REASONS.get(reasons[-1], reasons[-1])
    if any(isinstance(element, Refusal) for element in turn.elements):
        return "refusal"
    return "tool_use" if any(isinstance(element, ToolCalls) for element in turn.elements) else "end_turn"


def _frame(event: dict[str, Any]) -> bytes:
    return sse.encode_frame(event["type"], msgspec.json.encode(event))


def _fold_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Fold the events into the message."""
    message: dict[str, Any] = events[0]["message"]
    arguments_by_index: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                message["content"].append(block)
            case {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }:
                arguments_by_index[index] = arguments_by_index.get(index, "") + piece
                message["content"][index]["input"] = parse_json(arguments_by_index[index]) or {}
            case {"type": "content_block_delta", "index": index, "delta": {**delta}}:
                name = next(name for name in delta if name != "type")
                message["content"][index][name] += delta[name]
            case {"type": "message_delta", "delta": delta}:
                message |= {**delta, **{name: event[name] for name in ("usage",) if name in event}}
    return message


def _model_list(names: Sequence[str]) -> dict[str, Any]:
    entries = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
        for name in names
    ]
    return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}


STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
