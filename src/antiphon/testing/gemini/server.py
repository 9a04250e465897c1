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
from antiphon.testing.embeddings import embed_gemini
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
        model_names = None if models is None else tuple(models)
        server_limits = msgspec.structs.replace(
            limits or GeminiLimits(), key=key, models=model_names, max_chars=max_chars, strict=strict
        )
        behavior = GeminiBehavior(
            server_limits, gives_ids=gives_ids, usage_in=usage_in, one_frame=one_frame, secret=secret
        )
        super().__init__(behavior, script, port=port)

    @property
    def base_url(self) -> str:
        """The base URL with the version. The SDK of the API's maker takes `origin` and adds the version itself."""
        return f"{self.origin}/v1beta"

    def _render_reply(self, reply: Reply, request: ReceivedRequest) -> Iterable[Step]:
        call = parse_model_call(request)
        if isinstance(reply, ScriptedTurn) and call is not None and call.is_array_stream:
            reply = msgspec.structs.replace(reply, headers={"content-type": "application/json", **reply.headers})
        return super()._render_reply(reply, request)


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
        self._response_numbers = itertools.count(1)

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        call = parse_model_call(request)
        path = request.path.partition("?")[0]
        try:
            match request.method, call:
                case "POST", ModelCall(method="generateContent" | "streamGenerateContent"):
                    return None
                case "POST", ModelCall(method="countTokens") as count_call:
                    return self._count_tokens(count_call, request)
                case "POST", ModelCall(method="embedContent" | "batchEmbedContents") as embedding_call:
                    return self._embed(embedding_call, request)
                case "GET", None if path.rstrip("/").endswith("/models"):
                    gemini_rules.check_key(request, self._limits)
                    return whole({"models": [_model_entry(name) for name in self._model_names()]})
                case "GET", None if path.rpartition("/models/")[2] in self._model_names():
                    gemini_rules.check_key(request, self._limits)
                    return whole(_model_entry(path.rpartition("/models/")[2]))
        except GeminiRequestRefused as refusal:
            return refusal.reply
        return gemini_error(404, f"There is no {request.method} {path} here.")

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        call = _model_call(request)
        try:
            gemini_rules.check(call, request, self._limits, self._signatures)
        except GeminiRequestRefused as refusal:
            reply = refusal.reply
            # An error of a stream that is an array is an array too.
            return msgspec.structs.replace(reply, body=b"[" + reply.body + b"\n]") if call.is_array_stream else reply
        return None

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        return improvise(make_prompt(_body(request)))

    def wants_stream(self, request: ReceivedRequest) -> bool:
        return _model_call(request).is_stream

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        renderer = self._make_renderer(turn, request)
        steps = renderer.render_one_frame() if self._one_frame else renderer.render_frames(self._usage_in)
        return _as_array(steps) if _model_call(request).is_array_stream else _as_events(steps)

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        return msgspec.json.encode(self._make_renderer(turn, request).render_answer())

    def _make_renderer(self, turn: ScriptedTurn, request: ReceivedRequest) -> TurnRenderer:
        model = _model_call(request).model
        must_sign = signs_calls(model, self._limits)
        head = {"modelVersion": model, "responseId": f"resp-{next(self._response_numbers)}"}
        return TurnRenderer(
            turn, _body(request), head, self._signatures, must_sign=must_sign, gives_ids=self._gives_ids
        )

    def _count_tokens(self, call: ModelCall, request: ReceivedRequest) -> PlainReply:
        counted_request = gemini_rules.check_count(call, request, self._limits, self._signatures)
        tokens = prompt_chars(counted_request) // 4 + 1
        return whole({"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]})

    def _embed(self, call: ModelCall, request: ReceivedRequest) -> PlainReply:
        gemini_rules.check_key(request, self._limits)
        body: dict[str, Any] = request.json
        if call.method == "embedContent":
            return whole({"embedding": {"values": embed_gemini(body)}})
        requests = body.get("requests", [])
        # Documentation: every request names the model of the path. Public reports: at most 100 requests.
        if any(entry.get("model") != f"models/{call.model}" for entry in requests):
            return gemini_error(400, "Model names in the requests must match the model in the path.")
        if not 1 <= len(requests) <= 100:
            return gemini_error(400, "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch")
        return whole({"embeddings": [{"values": embed_gemini(entry)} for entry in requests]})

    def _model_names(self) -> tuple[str, ...]:
        return self._limits.models or ("mock-1",)


def _model_call(request: ReceivedRequest) -> ModelCall:
    """Return the model call of a path that is a model's."""
    call = parse_model_call(request)
    assert call is not None, request.path
    return call


def _body(request: ReceivedRequest) -> dict[str, Any]:
    return dict(read_message(request.json, "request", SHAPES, ShapeReport()).value)


def _model_entry(name: str) -> dict[str, Any]:
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
    return [
        b"data: " + msgspec.json.encode(frame) + b"\r\n\r\n" if isinstance(frame, dict) else frame for frame in rendered
    ]


def _as_array(rendered: list[dict[str, Any] | Step]) -> list[Step]:
    """Return the frames as members of one JSON array, which is complete only at the end."""
    steps: list[Step] = []
    separator = b"["
    for frame in rendered:
        steps.append(separator + msgspec.json.encode(frame) if isinstance(frame, dict) else frame)
        separator = b"\n,\r\n" if isinstance(frame, dict) else separator
    return [*steps, b"\n]"]
