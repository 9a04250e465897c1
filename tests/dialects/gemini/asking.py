"""Test helpers that read `generateContent` bodies into hub requests."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from antiphon.dialects.gemini import request_to_hub
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class Asked(NamedTuple):
    request: Request
    losses: Losses

    @property
    def items(self) -> list[ItemParam]:
        assert isinstance(self.request.input, list)
        return self.request.input

    @property
    def lost(self) -> list[str]:
        return [loss.path for loss in self.losses]

    @property
    def own(self) -> dict[str, Any]:
        """The fields that only this dialect has."""
        return {name: json.loads(bytes(raw)) for name, raw in (self.request.extra or {}).items()}


def ask(*contents: dict[str, Any], **members: Any) -> Asked:
    """Read a body of these contents; without any, of one short user text."""
    body = {"contents": list(contents) or [user({"text": "hi"})], **members}
    return Asked(*request_to_hub(json.dumps(body).encode()))


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def call(name: str, args: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **({"args": args} if args is not None else {}), **members}}


def result(name: str, response: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, **({"response": response} if response is not None else {}), **members}}
