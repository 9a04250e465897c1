"""`OllamaServer`: a strict server of Ollama's own API. It renders a turn as JSON lines or as one equivalent answer.

The JSON is written by hand and shares no code with the dialect with which the gateway reads it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.testing.embeddings import embed_ollama
from antiphon.testing.harness import FakeServer
from antiphon.testing.improvise import OfferedTool, Prompt, improvise
from antiphon.testing.ollama.rules import (
    OllamaLimits,
    RequestRefused,
    check,
    check_model_name,
    ollama_error,
    prompt_chars,
)
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
    usage_of,
    whole,
)


class OllamaServer(FakeServer):
    """`with OllamaServer([turn(text("Hel", "lo"))]) as server:`. Without a script it echoes and calls tools
    (`improvise`). Its base URL has no version."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
        max_chars: int | None = None,
        strict: bool = True,
        plain_models: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        served = None if models is None else tuple(models)
        limits = OllamaLimits(
            key=key, models=served, max_chars=max_chars, strict=strict, plain_models=tuple(plain_models)
        )
        super().__init__(OllamaBehavior(limits), script, port=port, framing="json_lines")

    @property
    def base_url(self) -> str:
        return self.origin


class OllamaBehavior:
    """The behaviour of this dialect. It does no IO."""

    def __init__(self, limits: OllamaLimits = OllamaLimits()) -> None:  # noqa: B008
        self._limits = limits

    def answer_other_path(self, received: ReceivedRequest) -> PlainReply | None:
        match (received.method, received.path.partition("?")[0]):
            case ("POST", "/api/chat" | "/api/generate"):
                return None
            case ("GET", "/api/tags"):
                names = self._limits.models or ("mock-1",)
                return whole({"models": [{"name": name, "model": name, **MODEL} for name in names]})
            case ("POST", "/api/show"):
                return self._show(received)
            case ("POST", "/api/embed" | "/api/embeddings"):
                return whole(embed_ollama(received.json))
            case ("GET", "/api/version"):
                return whole({"version": "0.0.0"})
            case _:
                return PlainReply(status=404, body=b"404 page not found", headers={"content-type": "text/plain"})

    def find_refusal(self, received: ReceivedRequest) -> PlainReply | None:
        try:
            check(received, self._limits)
        except RequestRefused as refused:
            return refused.reply
        return None

    def improvise(self, received: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(received.json))

    def wants_stream(self, received: ReceivedRequest) -> bool:
        return received.json.get("stream") is not False

    def render_stream(self, turn: ScriptedTurn, received: ReceivedRequest) -> list[Step]:
        return _Stream(turn, received).steps()

    def render_body(self, turn: ScriptedTurn, received: ReceivedRequest) -> bytes:
        answer = _Answer(received)
        texts = [*_pieces(turn, Text), *_pieces(turn, Refusal)]
        calls = [call for element in turn.elements if isinstance(element, ToolCalls) for call in element.calls]
        piece = answer.piece("".join(texts), "".join(_pieces(turn, Reasoning)), calls, texts)
        return msgspec.json.encode(piece if "finish" in turn.omit else {**piece, **answer.end(turn)})

    def _show(self, received: ReceivedRequest) -> PlainReply:
        body = received.json
        name = (body.get("model") or body.get("name")) if isinstance(body, dict) else None
        if not isinstance(name, str):
            return ollama_error(400, "model is required")
        try:
            check_model_name(name, self._limits)
        except RequestRefused as refused:
            return refused.reply
        shown = {"modelfile": "", "template": "{{ .Prompt }}", "details": MODEL["details"], "model_info": {}}
        return whole({**shown, "capabilities": ["completion", "tools"]})


class _Answer:
    """Renders answers to one request, in the form of its endpoint."""

    def __init__(self, received: ReceivedRequest) -> None:
        self._body: dict[str, Any] = received.json
        self._is_generated = received.path.startswith("/api/generate")
        self._calls = 0

    def piece(self, content: str, thinking: str, calls: Sequence[ToolCall], tokens: Sequence[str]) -> dict[str, Any]:
        """Return a line with a piece of the answer."""
        line: dict[str, Any] = {"model": self._body["model"], "created_at": _now()}
        message: dict[str, Any] = {"thinking": thinking} if thinking else {}
        if calls:
            message["tool_calls"] = [self._call(call) for call in calls]
        if self._is_generated:
            line |= {"response": content, **message}
        else:
            line["message"] = {"role": "assistant", "content": content, **message}
        if self._body.get("logprobs") and tokens:
            line["logprobs"] = [_logprob(token, self._body.get("top_logprobs") or 0) for token in tokens if token]
        return {**line, "done": False}

    def end(self, turn: ScriptedTurn) -> dict[str, Any]:
        """Return the members of the last line."""
        reasons = [element.reason for element in turn.elements if isinstance(element, Finish)]
        reason = "length" if reasons[-1:] == ["length"] else "stop"
        durations = {"total_duration": 5000, "load_duration": 1000}
        if "usage" in turn.omit:
            return {"done": True, "done_reason": reason, **durations}
        usage = usage_of(turn, prompt_chars(self._body))
        counts = {"prompt_eval_count": usage.prompt, "eval_count": usage.completion}
        return {"done": True, "done_reason": reason, **durations, **counts}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        index, self._calls = self._calls, self._calls + 1
        return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": _arguments(call)}}


class _Stream:
    """Renders one turn as lines. The server sends each call whole."""

    def __init__(self, turn: ScriptedTurn, received: ReceivedRequest) -> None:
        self._turn = turn
        self._answer = _Answer(received)
        self._steps: list[Step] = []

    def steps(self) -> list[Step]:
        for element in self._turn.elements:
            match element:
                case Text() | Refusal():
                    for piece in element.pieces:
                        self._line(self._answer.piece(piece, "", (), (piece,)))
                case Reasoning():
                    for piece in element.pieces:
                        self._line(self._answer.piece("", piece, (), ()))
                case ToolCalls():
                    for call in element.calls:
                        self._line(self._answer.piece("", "", (call,), ()))
                case Raw():
                    self._steps.append(element.data)
                case Pause() | Wait() | End():
                    self._steps.append(element)
                case Redacted() | Finish() | ScriptedUsage():
                    pass  # the API has no redacted reasoning; the others are rendered at the end
                case _ as never:
                    assert_never(never)
        if "finish" not in self._turn.omit:
            self._line({**self._answer.piece("", "", (), ()), **self._answer.end(self._turn)})
        return self._steps

    def _line(self, line: dict[str, Any]) -> None:
        self._steps.append(msgspec.json.encode(line) + b"\n")


def make_prompt(body: dict[str, Any]) -> Prompt:
    """Convert the request to a `Prompt`."""
    messages: list[dict[str, Any]] = body.get("messages") or [
        {"role": "user", "content": body.get("prompt") or "", "images": body.get("images")}
    ]
    last = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    user = messages[last] if last >= 0 else {}
    limit = (body.get("options") or {}).get("num_predict")
    tools = [tool["function"] for tool in body.get("tools") or ()]
    return Prompt(
        text=user.get("content") or "",
        media=len(user.get("images") or ()),
        results=_results(messages[last + 1 :]),
        calls_before=sum(len(message.get("tool_calls") or ()) for message in messages),
        tools=tuple(OfferedTool(tool["name"], tool.get("parameters") or {}) for tool in tools),
        schema=_schema(body.get("format")),
        thinks=bool(body.get("think")),
        max_pieces=limit if limit is not None and limit > 0 else None,
    )


def _results(messages: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the tool results of the newest round of calls."""
    results: list[tuple[str, str]] = []
    for message in messages:
        if message.get("role") == "assistant":
            results = []
        elif message.get("role") == "tool":
            results.append((message.get("tool_name") or "the tool", message.get("content") or ""))
    return tuple(results)


def _schema(format: Any) -> dict[str, Any] | None:
    if isinstance(format, dict):
        return format
    return {} if format == "json" else None


def _pieces(turn: ScriptedTurn, kind: type[Text | Refusal | Reasoning]) -> list[str]:
    return [piece for element in turn.elements if isinstance(element, kind) for piece in element.pieces]


def _arguments(call: ToolCall) -> Any:
    """Return the arguments as an object. The API has no custom tools: their input is the one string of a function."""
    if call.kind == "custom":
        return {"input": "".join(call.pieces)}
    return decode_json("".join(call.pieces) or "{}", type=dict[str, Any])


def _logprob(token: str, tops: int) -> dict[str, Any]:
    one = {"token": token, "logprob": -0.25, "bytes": list(token.encode())}
    return {**one, "top_logprobs": [one] * tops} if tops else one


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.123456Z", time.gmtime())


MODEL: dict[str, Any] = {
    "modified_at": "2026-01-01T00:00:00Z",
    "size": 1,
    "digest": "0" * 64,
    "details": {"format": "gguf", "family": "mock", "families": ["mock"], "parameter_size": "1B"},
}
