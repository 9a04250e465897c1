"""`ChatServer`: a strict server of Chat Completions. It renders a turn as chunks or as one equivalent completion.

The JSON is written by hand and shares no code with the dialect with which the gateway reads it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, Literal, assert_never, cast

import msgspec

from antiphon import sse
from antiphon.rules.content import texts_in
from antiphon.testing.chat import rules as chat_rules
from antiphon.testing.harness import FakeServer
from antiphon.testing.improvise import OfferedTool, Prompt, improvise
from antiphon.testing.rules import RequestRefused, ServerLimits, answer_other_path
from antiphon.testing.script import (
    End,
    Finish,
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
)


class ChatServer(FakeServer):
    """`with ChatServer([turn(text("Hel", "lo"))]) as server:`. Without a script it echoes and calls tools
    (`improvise`)."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
        max_chars: int | None = None,
        strict: bool = True,
        strict_fields: bool = False,
        wants_reasoning: bool = False,
        reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content",
        port: int = 0,
    ) -> None:
        model_names = None if models is None else tuple(models)
        limits = ServerLimits(
            key=key,
            models=model_names,
            max_chars=max_chars,
            strict=strict,
            strict_fields=strict_fields,
            wants_reasoning=wants_reasoning,
        )
        super().__init__(ChatBehavior(limits, reasoning_field), script, port=port)


class ChatBehavior:
    """The behaviour of this dialect. It does no IO."""

    def __init__(self, limits: ServerLimits = ServerLimits(), reasoning_field: str = "reasoning_content") -> None:  # noqa: B008
        self._limits = limits
        self._reasoning_field = reasoning_field
        self._response_numbers = itertools.count(1)

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        return answer_other_path(request, "/v1/chat/completions", self._limits)

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        try:
            chat_rules.check(request, self._limits)
        except RequestRefused as refusal:
            return refusal.reply
        return None

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(request.json))

    def wants_stream(self, request: ReceivedRequest) -> bool:
        return bool(request.json.get("stream"))

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        return _StreamRenderer(
            turn, request.json, self._make_head("chat.completion.chunk", request), self._reasoning_field
        ).render_steps()

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        body = request.json
        choice = {"index": 0, "message": _render_message(turn, self._reasoning_field), **_choice_end(turn, body)}
        completion = {**self._make_head("chat.completion", request), "choices": [choice]}
        return msgspec.json.encode(completion if "usage" in turn.omit else {**completion, "usage": _usage(turn, body)})

    def _make_head(self, kind: str, request: ReceivedRequest) -> dict[str, Any]:
        id = f"chatcmpl-{next(self._response_numbers)}"
        return {"id": id, "object": kind, "created": int(time.time()), "model": request.json.get("model", "mock-1")}


class _StreamRenderer:
    """Renders one turn as frames: the role first, then each piece in its own chunk."""

    def __init__(self, turn: ScriptedTurn, body: dict[str, Any], head: dict[str, Any], reasoning_field: str) -> None:
        self._turn = turn
        self._body = body
        self._head = head
        self._reasoning_field = reasoning_field
        self._has_started = False
        self._call_count = 0
        self._steps: list[Step] = []

    def render_steps(self) -> list[Step]:
        for element in self._turn.elements:
            match element:
                case Text():
                    for piece in element.pieces:
                        self._add_delta({"content": piece}, logprobs=_logprobs([piece], self._body))
                case Reasoning():
                    for piece in element.pieces:
                        self._add_delta({self._reasoning_field: piece})
                case Refusal():
                    for piece in element.pieces:
                        self._add_delta({"refusal": piece})
                case ToolCalls():
                    for index, call, arguments in interleave_pieces(element):
                        self._add_delta({"tool_calls": [_render_call_piece(self._call_count + index, call, arguments)]})
                    self._call_count += len(element.calls)
                case Raw():
                    self._steps.append(element.data)
                case Pause() | Wait() | End():
                    self._steps.append(element)
                case Redacted():
                    pass  # chat has no redacted reasoning
                case Finish() | ScriptedUsage():
                    pass  # rendered at the end
                case _ as never:
                    assert_never(never)
        self._add_end()
        return self._steps

    def _add_end(self) -> None:
        omit = self._turn.omit
        if "finish" not in omit:
            self._add_delta({}, finish_reason=_finish_reason(self._turn))
        # Usage is a last chunk without choices, and only on request.
        if "usage" not in omit and (self._body.get("stream_options") or {}).get("include_usage"):
            self._add_frame({**self._head, "choices": [], "usage": _usage(self._turn, self._body)})
        if "done" not in omit:
            self._steps.append(sse.DONE_FRAME)

    def _add_delta(self, delta: dict[str, Any], *, finish_reason: str | None = None, logprobs: Any = None) -> None:
        if not self._has_started:
            self._has_started = True
            self._add_delta({"role": "assistant", "content": ""})
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        self._add_frame({**self._head, "choices": [choice]})

    def _add_frame(self, chunk: dict[str, Any]) -> None:
        self._steps.append(sse.encode_data(msgspec.json.encode(chunk)))


def make_prompt(body: dict[str, Any]) -> Prompt:
    """Convert the request to a `Prompt`."""
    messages: list[dict[str, Any]] = body["messages"]
    last_user_index = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    content = messages[last_user_index].get("content") if last_user_index >= 0 else ""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    tools, choice = _offered_tools(body)
    return Prompt(
        text=" ".join(texts_in(content)),
        media=sum(part["type"] != "text" for part in content) if isinstance(content, list) else 0,
        results=_tool_results(messages[last_user_index + 1 :]),
        calls_before=sum(len(message.get("tool_calls") or ()) for message in messages),
        tools=tools,
        choice=choice,
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_answer_schema(body.get("response_format") or {}),
        thinks=body.get("reasoning_effort") not in (None, "none"),
        max_pieces=limit,
    )


def _tool_results(messages: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the tool results of the newest round of calls."""
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    for message in messages:
        if message["role"] == "assistant":
            names = {call["id"]: call[call["type"]]["name"] for call in message.get("tool_calls") or ()}
            results = []
        elif message["role"] == "tool":
            results.append((names.get(message["tool_call_id"], "the tool"), " ".join(texts_in(message.get("content")))))
    return tuple(results)


def _offered_tools(body: dict[str, Any]) -> tuple[tuple[OfferedTool, ...], str]:
    """Return the tools that may be called, and the tool choice."""
    tools = []
    for tool in body.get("tools") or ():
        definition = tool[tool["type"]]
        tools.append(OfferedTool(definition["name"], definition.get("parameters") or {}, tool["type"]))
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return tuple(tools), choice
    definition = choice[choice["type"]]
    names = (
        [definition["name"]] if "name" in definition else [tool[tool["type"]]["name"] for tool in definition["tools"]]
    )
    return tuple(tool for tool in tools if tool.name in names), definition.get("mode", "required")


def _answer_schema(format: dict[str, Any]) -> dict[str, Any] | None:
    match format:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return cast(dict[str, Any], schema)
        case {"type": "json_object"}:
            return {}
        case _:
            return None


def _render_message(turn: ScriptedTurn, reasoning_field: str) -> dict[str, Any]:
    """Return the content of the stream as one message."""
    texts = ["".join(element.pieces) for element in turn.elements if isinstance(element, Text)]
    reasoning_texts = ["".join(element.pieces) for element in turn.elements if isinstance(element, Reasoning)]
    refusals = ["".join(element.pieces) for element in turn.elements if isinstance(element, Refusal)]
    calls = [call for element in turn.elements if isinstance(element, ToolCalls) for call in element.calls]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    message["refusal"] = "".join(refusals) if refusals else None
    if reasoning_texts:
        message[reasoning_field] = "".join(reasoning_texts)
    if calls:
        message["tool_calls"] = [_render_call(call) for call in calls]
    return message


def _render_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": call.kind,
        call.kind: {"name": call.name, ARGUMENT_FIELDS[call.kind]: "".join(call.pieces)},
    }


def _render_call_piece(index: int, call: ToolCall, piece: str | None) -> dict[str, Any]:
    field = ARGUMENT_FIELDS[call.kind]
    if piece is None:
        return {"index": index, "id": call.id, "type": call.kind, call.kind: {"name": call.name, field: ""}}
    return {"index": index, call.kind: {field: piece}}


def _choice_end(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
    pieces = [piece for element in turn.elements if isinstance(element, Text) for piece in element.pieces]
    reason = None if "finish" in turn.omit else _finish_reason(turn)
    return {"logprobs": _logprobs(pieces, body) if pieces else None, "finish_reason": reason}


def _finish_reason(turn: ScriptedTurn) -> str:
    reasons = [element.reason for element in turn.elements if isinstance(element, Finish)]
    has_calls = any(isinstance(element, ToolCalls) for element in turn.elements)
    return reasons[-1] if reasons else "tool_calls" if has_calls else "stop"


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
    usage = usage_of(turn, chat_rules.prompt_chars(body))
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            **({"cache_write_tokens": usage.cache_write} if usage.cache_write else {}),
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _logprobs(pieces: list[str], body: dict[str, Any]) -> dict[str, Any] | None:
    """Return each piece as a token, if requested; the alternatives repeat the same token."""
    if not body.get("logprobs"):
        return None
    tokens = [{"token": piece, "logprob": -0.25, "bytes": list(piece.encode())} for piece in pieces]
    return {
        "content": [{**token, "top_logprobs": [token] * (body.get("top_logprobs") or 0)} for token in tokens],
        "refusal": None,
    }


ARGUMENT_FIELDS = {"function": "arguments", "custom": "input"}
