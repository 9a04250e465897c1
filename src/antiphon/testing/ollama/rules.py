"""What a strict Ollama server refuses: the rules of the dialect, and what depends on one server (key, models, context).

`check(received, limits)` returns the body or raises `RequestRefused`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.rules import Report, Violation, ollama
from antiphon.testing.script import PlainReply, ReceivedRequest, whole


class OllamaLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server: its key, its models, the length of prompts, and the models without a capability."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    strict: bool = True
    #: Models that do not think, and models that have no tools.
    plain_models: tuple[str, ...] = ()


class RequestRefused(Exception):
    """A real server would refuse the request."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reply: PlainReply = ollama_error(status, message)


class StrictReport(Report):
    """Refuses a request at the first violation."""

    def receive(self, violation: Violation) -> None:
        raise RequestRefused(violation.message, 500 if violation.code == ollama.OPTION_CODE else 400)


def ollama_error(status: int, message: str = "scripted") -> PlainReply:
    """Return an error in the form of Ollama's API."""
    return whole({"error": message}, status)


def check(received: ReceivedRequest, limits: OllamaLimits) -> dict[str, Any]:
    # A server has no keys; the proxies in front of one answer 401.
    if limits.key is not None and received.headers.get("authorization") != f"Bearer {limits.key}":
        raise RequestRefused("unauthorized", 401)
    if not received.body:
        raise RequestRefused("missing request body")
    body = received.json
    if not isinstance(body, dict):
        raise RequestRefused("invalid character looking for beginning of value")
    if limits.strict:
        ollama.check(body, StrictReport())
    ollama.check_model(body, StrictReport())
    check_model_name(body["model"], limits)
    _check_capabilities(body, limits)
    # Only a server that does not truncate refuses a long prompt.
    chars = prompt_chars(body)
    if limits.max_chars is not None and chars > limits.max_chars:
        raise RequestRefused(f"the input length exceeds the context length: {chars} > {limits.max_chars}")
    return body


def check_model_name(name: str, limits: OllamaLimits) -> None:
    if limits.models is not None and name not in limits.models:
        raise RequestRefused(f"model '{name}' not found", 404)


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    messages = body.get("messages") or [{"content": body.get("prompt")}, {"content": body.get("system")}]
    return sum(len(message.get("content") or "") for message in messages if isinstance(message, dict))


def _check_capabilities(body: dict[str, Any], limits: OllamaLimits) -> None:
    # A model without a capability refuses requests that need it.
    if body["model"] not in limits.plain_models:
        return
    if body.get("think"):
        raise RequestRefused(f'"{body["model"]}" does not support thinking')
    if body.get("tools"):
        raise RequestRefused(f"registry.ollama.ai/library/{body['model']}:latest does not support tools")
