"""`GeminiServer`: a strict server of the gemini dialect. It renders a turn as frames or as one equivalent answer.

The JSON is written by hand and shares no code with the dialect with which the gateway reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from antiphon.rules.gemini.request import signs_calls
from antiphon.rules.gemini.shapes import SHAPES, read_message
from antiphon.testing.gemini import rules as gemini_rules
from antiphon.testing.gemini.errors import GeminiRequestRefused, gemini_error
from antiphon.testing.gemini.prompt import make_prompt
from antiphon.testing.gemini.rules import GeminiLimits, ModelCall, ShapeReport, parse_model_call, prompt_chars
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.gemini.turn_rendering import BLOCKED, TurnRenderer, UsageIn
from antiphon.testing.harness import FakeServer
from antiphon.testing.improvise import improvise
from antiphon.testing.script import Finish, PlainReply, ReceivedRequest, Reply, Script, ScriptedTurn, Step, turn, whole


class GeminiServer(FakeServer):
    """`with GeminiServer([turn(text("Hel", "lo"))]) as server:`. Without a script it echoes and calls tools
    (`improvise`).

    `limits` has further limits. `gives_ids`: its calls have ids. `usage_in`: the frames that have the usage.
    `one_frame`: text and calls are in one frame.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
        max_chars: int | None = None,
        strict: bool = True,
        limits: GeminiLimits | None = None,
        gives_ids: bool = True,
        usage_in: UsageIn = "every",
        one_frame: bool = False,
        secret: bytes = b"fake",
        port: int = 0,
    ) -> None:
        served = None if models is None else tuple(models)
        allowed = msgspec.structs.replace(
            limits or GeminiLimits(), key=key, models=served, max_chars=max_chars, strict=strict
        )
        behavior = GeminiBehavior(allowed, gives_ids=gives_ids, usage_in=usage_in, one_frame=one_frame, secret=secret)
        super().__init__(behavior, script, port=port)

    @property
    def base_url(self) -> str:
        """The base URL with the version. The SDK of the API's maker takes `origin` and adds the version itself."""
        return f"{self.origin}/v1beta"

    def _steps_of(self, reply: Reply, received: ReceivedRequest) -> Iterable[Step]:
        call = parse_model_call(received)
        if isinstance(reply, ScriptedTurn) and call is not None and call.as_array:
            reply = msgspec.structs.replace(reply, headers={"content-type": "application/json", **reply.headers})
        return super()._steps_of(reply, received)


def blocked(reason: str = "SAFETY") -> ScriptedTurn:
    """Answer that the prompt is blocked: no candidates, and the reason."""
    return turn(Finish(f"{BLOCKED}{reason}"))


def empty() -> ScriptedTurn:
    """Answer without candidates and without a reason."""
    return turn(omit=["finish"])


class GeminiBehavior:
    """The behaviour of this dialect. It does no IO."""

    def __init__(
        self,
        limits: GeminiLimits = GeminiLimits(),  # noqa: B008
        *,
        gives_ids: bool = True,
        usage_in: UsageIn = "every",
        one_frame: bool = False,
        secret: bytes = b"fake",
    ) -> None:
        self._limits = limits
        self._gives_ids = gives_ids
        self._usage_in: UsageIn = usage_in
        self._one_frame = one_frame
        self._signatures = Signatures(secret)
        self._numbers = itertools.count(1)

    def answer_other_path(self, received: ReceivedRequest) -> PlainReply | None:
        call = parse_model_call(received)
        path = received.path.partition("?")[0]
        try:
            match received.method, call:
                case "POST", ModelCall(method="generateContent" | "streamGenerateContent"):
                    return None
                case "POST", ModelCall(method="countTokens") as counted:
                    return self._count(counted, received)
                case "GET", None if path.rstrip("/").endswith("/models"):
                    gemini_rules.check_key(received, self._limits)
                    return whole({"models": [_listed(name) for name in self._models()]})
                case "GET", None if path.rpartition("/models/")[2] in self._models():
                    gemini_rules.check_key(received, self._limits)
                    return whole(_listed(path.rpartition("/models/")[2]))
        except GeminiRequestRefused as refused:
            return refused.reply
        return gemini_error(404, f"There is no {received.method} {path} here.")

    def find_refusal(self, received: ReceivedRequest) -> PlainReply | None:
        call = _model_call(received)
        try:
            gemini_rules.check(call, received, self._limits, self._signatures)
        except GeminiRequestRefused as refused:
            reply = refused.reply
            # A stream that is an array is one already when it has nothing to say but an error.
            return msgspec.structs.replace(reply, body=b"[" + reply.body + b"\n]") if call.as_array else reply
        return None

    def improvise(self, received: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(_body(received)))

    def wants_stream(self, received: ReceivedRequest) -> bool:
        return _model_call(received).streams

    def render_stream(self, turn: ScriptedTurn, received: ReceivedRequest) -> list[Step]:
        renderer = self._renderer(turn, received)
        steps = renderer.one_frame() if self._one_frame else renderer.frames(self._usage_in)
        return _as_array(steps) if _model_call(received).as_array else _as_events(steps)

    def render_body(self, turn: ScriptedTurn, received: ReceivedRequest) -> bytes:
        return msgspec.json.encode(self._renderer(turn, received).answer())

    def _renderer(self, turn: ScriptedTurn, received: ReceivedRequest) -> TurnRenderer:
        model = _model_call(received).model
        signs = signs_calls(model, self._limits)
        head = {"modelVersion": model, "responseId": f"resp-{next(self._numbers)}"}
        return TurnRenderer(turn, _body(received), head, self._signatures, signs=signs, gives_ids=self._gives_ids)

    def _count(self, call: ModelCall, received: ReceivedRequest) -> PlainReply:
        request = gemini_rules.check_count(call, received, self._limits, self._signatures)
        tokens = prompt_chars(request) // 4 + 1
        return whole({"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]})

    def _models(self) -> tuple[str, ...]:
        return self._limits.models or ("mock-1",)


def _model_call(received: ReceivedRequest) -> ModelCall:
    """Return the model call of a path that is a model's."""
    call = parse_model_call(received)
    assert call is not None, received.path
    return call


def _body(received: ReceivedRequest) -> dict[str, Any]:
    return dict(read_message(received.json, "request", SHAPES, ShapeReport()).value)


def _listed(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def _as_events(rendered: list[dict[str, Any] | Step]) -> list[Step]:
    # Lines end in CR LF, and there is no [DONE].
    return [b"data: " + msgspec.json.encode(one) + b"\r\n\r\n" if isinstance(one, dict) else one for one in rendered]


def _as_array(rendered: list[dict[str, Any] | Step]) -> list[Step]:
    """Return the frames as members of one JSON array, which is complete only at the end."""
    steps: list[Step] = []
    before = b"["
    for one in rendered:
        steps.append(before + msgspec.json.encode(one) if isinstance(one, dict) else one)
        before = b"\n,\r\n" if isinstance(one, dict) else before
    return [*steps, b"\n]"]
