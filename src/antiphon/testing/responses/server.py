"""`ResponsesServer`: a strict, stateless server of the Responses API. It renders a turn as events or as one response.

The hub's writer makes the events, so they are conformant. Use `raw` and `exactly` for nonconformant servers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never, cast

from antiphon.dialects.responses import EventsFromHub, error_from_hub, request_to_hub
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol import response as hub
from antiphon.protocol.content import LogProb, TopLogProb
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter
from antiphon.rules.content import texts_in
from antiphon.testing.harness import FakeServer
from antiphon.testing.improvise import OfferedTool, Prompt, improvise
from antiphon.testing.responses import rules as responses_rules
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
    ToolCalls,
    TurnElement,
    Wait,
    interleave_pieces,
    usage_of,
)


class ResponsesServer(FakeServer):
    """`with ResponsesServer([turn(text("Hel", "lo"))]) as server:`. Without a script it echoes and calls tools
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
        own_tools: Sequence[str] = (),
        maker: str = "fake",
        plain_models: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        limits = ServerLimits(
            key=key,
            models=None if models is None else tuple(models),
            max_chars=max_chars,
            strict=strict,
            strict_fields=strict_fields,
            own_tools=tuple(own_tools),
            maker=maker,
            plain_models=tuple(plain_models),
        )
        super().__init__(ResponsesBehavior(limits), script, port=port)


class ResponsesBehavior:
    """The behaviour of this dialect. It does no IO."""

    def __init__(self, limits: ServerLimits = ServerLimits()) -> None:  # noqa: B008
        self._limits = limits
        numbers = itertools.count(1)
        self._stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: int(time.time()))

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        return answer_other_path(request, "/v1/responses", self._limits)

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        try:
            responses_rules.check(request, self._limits)
            request_to_hub(request.body)
        except RequestRefused as refusal:
            return refusal.reply
        except ApiError as fault:  # violations of the specification's schema
            status, body = error_from_hub(fault)
            return PlainReply(status=status, body=body, headers={"content-type": "application/json"})
        return None

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(request.json))

    def wants_stream(self, request: ReceivedRequest) -> bool:
        return bool(request.json.get("stream"))

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        hub_request, _ = request_to_hub(request.body)
        encoder = EventsFromHub(hub_request)
        steps: list[Step] = []
        for item in self._render(turn, request)[0]:
            steps.append(item if isinstance(item, bytes | Pause | Wait | End) else encoder.feed(item))
        return steps if "done" in turn.omit else [*steps, encoder.finish()]

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        return codec.encode(self._render(turn, request)[1])

    def _render(self, turn: ScriptedTurn, request: ReceivedRequest) -> tuple[list[Any], hub.Response]:
        """Return the events of a turn with the steps between them, and the final response."""
        hub_request, _ = request_to_hub(request.body)
        initial_response = hub.make_initial_response(
            hub_request, id=self._stamps.new_id("resp"), created_at=self._stamps.now()
        )
        events = EventCollector()
        seal = partial(responses_rules.make_encrypted_content, maker=self._limits.maker)
        renderer = _TurnRenderer(
            ResponseWriter(initial_response, events, self._stamps), request.json, self._stamps, seal
        )
        items: list[Any] = []
        for element in turn.elements:
            match element:
                case Raw():
                    items.append(element.data)
                case Pause() | Wait() | End():
                    items.append(element)
                case _:
                    renderer.add_element(element)
                    items += events.take()
        if "finish" not in turn.omit:
            renderer.end_response(_finish_reason(turn), None if "usage" in turn.omit else _usage(turn, request.json))
        return items + events.take(), renderer.writer.response


class _TurnRenderer:
    """Passes the elements of a turn to the writer. A new kind of content starts a new item."""

    def __init__(
        self, writer: ResponseWriter, body: dict[str, Any], stamps: Stamps, seal: Callable[[str], str]
    ) -> None:
        self.writer = writer
        self._new_id = stamps.new_id
        self._seal = seal
        self._wants_encrypted_content = "reasoning.encrypted_content" in (body.get("include") or ())
        self._body = body
        self._wants_logprobs = "message.output_text.logprobs" in (body.get("include") or ())
        self._keys = itertools.count()
        self._key = -1
        self._open_kind: type[TurnElement] | None = None

    def add_element(self, element: Text | Reasoning | Redacted | Refusal | ToolCalls | Finish | ScriptedUsage) -> None:
        match element:
            case Text():
                key = self._open_item(Text)
                for piece in element.pieces:
                    self.writer.add_text(key, piece, logprobs=self._logprobs(piece))
            case Refusal():
                key = self._open_item(Text)  # a refusal is a part of a message, like text
                for piece in element.pieces:
                    self.writer.add_refusal(key, piece)
            case Reasoning():
                key = self._open_reasoning()
                for piece in element.pieces:
                    self.writer.add_reasoning(key, piece)
            case ToolCalls():
                self._close_items()
                self._add_calls(element)
            case Redacted():
                pass  # redacted reasoning is not rendered here
            case Finish() | ScriptedUsage():
                pass  # rendered at the end
            case _ as never:
                assert_never(never)

    def end_response(self, reason: str, usage: hub.Usage | None) -> None:
        match reason:
            case "length":
                self.writer.end_incomplete("max_output_tokens", usage)
            case "content_filter":
                self.writer.end_incomplete("content_filter", usage)
            case "error":
                self.writer.fail(UpstreamFault("scripted", code="server_error"), usage)
            case _:
                self.writer.complete(usage)

    def _open_item(self, kind: type[TurnElement]) -> int:
        if self._open_kind is not kind:
            self._close_items()
            self._open_kind = kind
            self._key = next(self._keys)
        return self._key

    def _open_reasoning(self) -> int:
        """Return the key of a reasoning item, with its encrypted content if requested."""
        is_new = self._open_kind is not Reasoning
        key = self._open_item(Reasoning)
        if is_new:
            id = self._new_id("rs")
            self.writer.open_reasoning(key, id=id)
            if self._wants_encrypted_content:
                self.writer.set_encrypted_content(key, self._seal(id))
        return key

    def _close_items(self) -> None:
        for key in self.writer.open_keys:
            self.writer.close_item(key)
        self._open_kind = None

    def _add_calls(self, element: ToolCalls) -> None:
        keys = [next(self._keys) for _ in element.calls]
        for index, call, piece in interleave_pieces(element):
            is_function = call.kind == "function"
            if piece is None:
                open_call = self.writer.open_call if is_function else self.writer.open_custom_call
                open_call(keys[index], name=call.name, call_id=call.id)
            else:
                (self.writer.add_arguments if is_function else self.writer.add_custom_input)(keys[index], piece)

    def _logprobs(self, piece: str) -> list[LogProb] | None:
        """Return each piece as a token, if requested; the alternatives repeat the same token."""
        if not self._wants_logprobs:
            return None
        alternative = TopLogProb(token=piece, logprob=-0.25, bytes=list(piece.encode()))
        alternatives = [alternative] * (self._body.get("top_logprobs") or 0)
        return [LogProb(token=piece, logprob=-0.25, bytes=list(piece.encode()), top_logprobs=alternatives)]


def make_prompt(body: dict[str, Any]) -> Prompt:
    """Convert the request to a `Prompt`."""
    input = body["input"]
    items: list[dict[str, Any]] = [{"role": "user", "content": input}] if isinstance(input, str) else input
    last_user_index = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=-1)
    content = items[last_user_index]["content"] if last_user_index >= 0 else ""
    tools, choice = _offered_tools(body)
    return Prompt(
        text=" ".join(texts_in(content)),
        media=sum(part["type"] != "input_text" for part in content) if isinstance(content, list) else 0,
        results=_tool_results(items[last_user_index + 1 :]),
        calls_before=sum(item.get("type") in CALL_TYPES for item in items),
        tools=tools,
        choice=choice,
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_answer_schema((body.get("text") or {}).get("format") or {}),
        thinks=(body.get("reasoning") or {}).get("effort") not in (None, "none"),
        max_pieces=body.get("max_output_tokens"),
    )


def _tool_results(items: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the tool results of the newest round of calls."""
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    for item in items:
        if item.get("type") in CALL_TYPES:
            if results:
                names, results = {}, []
            names[item["call_id"]] = item["name"]
        elif item.get("type") in OUTPUT_TYPES:
            results.append((names[item["call_id"]], " ".join(texts_in(item["output"]))))
    return tuple(results)


def _offered_tools(body: dict[str, Any]) -> tuple[tuple[OfferedTool, ...], str]:
    """Return the tools that may be called, and the tool choice."""
    tools = [OfferedTool(tool["name"], tool.get("parameters") or {}, tool["type"]) for tool in body.get("tools") or ()]
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return tuple(tools), choice
    names = [choice["name"]] if "name" in choice else [tool["name"] for tool in choice["tools"]]
    return tuple(tool for tool in tools if tool.name in names), choice.get("mode", "required")


def _answer_schema(format: dict[str, Any]) -> dict[str, Any] | None:
    match format:
        case {"type": "json_schema", "schema": schema}:
            return cast(dict[str, Any], schema)
        case {"type": "json_object"}:
            return {}
        case _:
            return None


def _finish_reason(turn: ScriptedTurn) -> str:
    return next((element.reason for element in turn.elements if isinstance(element, Finish)), "stop")


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> hub.Usage:
    usage = usage_of(turn, responses_rules.prompt_chars(body))
    return hub.Usage(
        input_tokens=usage.prompt,
        output_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        input_tokens_details=hub.InputTokensDetails(cached_tokens=usage.cached, cache_write_tokens=usage.cache_write),
        output_tokens_details=hub.OutputTokensDetails(reasoning_tokens=usage.reasoning),
    )


CALL_TYPES = ("function_call", "custom_tool_call")
OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")
