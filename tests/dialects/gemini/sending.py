"""Test helpers that send requests: the decoded body, checked by the strict fake server."""

from __future__ import annotations

import json
from typing import Any

from antiphon.dialects.gemini import request_from_hub
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.testing.gemini.rules import GeminiLimits, ModelCall, check
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.script import ReceivedRequest

#: The newest servers, which accept all fields that the tests of the dialect's own fields send.
LIMITS = GeminiLimits(json_with_tools=True)


def send(request: Request, wire: GeminiWire = GeminiWire()) -> tuple[dict[str, Any], Losses]:  # noqa: B008
    body, losses = request_from_hub(request, wire)
    value: dict[str, Any] = json.loads(body)
    return value, losses


def contents(*items: ItemParam, wire: GeminiWire = GeminiWire(), model: str = "m") -> list[dict[str, Any]]:  # noqa: B008
    """The contents that these items are sent as."""
    body, _ = send(Request(model=model, input=list(items)), wire)
    found: list[dict[str, Any]] = body["contents"]
    return found


def lost(request: Request, wire: GeminiWire = GeminiWire()) -> list[str]:  # noqa: B008
    return [loss.path for loss in send(request, wire)[1]]


def judged(body: dict[str, Any], limits: GeminiLimits = LIMITS, model: str = "m") -> dict[str, Any]:
    """The body, if a strict server accepts it. Any signature is valid here, so only its position is checked."""
    received = ReceivedRequest(
        method="POST", path="/v1beta/models/m:generateContent", headers={}, body=json.dumps(body).encode()
    )
    return check(ModelCall(model=model, method="generateContent", sse=False), received, limits, _AnySignature())


class _AnySignature(Signatures):
    def check_part(self, part: dict[str, Any]) -> None:
        """Every signature is valid."""
