"""The rules of each dialect, by its name: how a body is checked without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName
from antiphon.rules import chat, gemini, messages, ollama, responses
from antiphon.rules.report import Report
from antiphon.rules.settings import check_fields, check_model


class DialectRules(Struct, frozen=True, kw_only=True):
    """The rules of one dialect."""

    check: Callable[[dict[str, Any], Report], None]
    #: Whether paths in reports are written as servers of the dialect write them.
    has_server_paths: bool = False


def _check_chat(body: dict[str, Any], report: Report) -> None:
    check_model(body, report)
    check_fields(body, chat.FIELDS, report)
    chat.check(body, report)


def _check_responses(body: dict[str, Any], report: Report) -> None:
    check_model(body, report)
    check_fields(body, responses.FIELDS, report)
    responses.check(body, report)


def _check_messages(body: dict[str, Any], report: Report) -> None:
    messages.check_model(body, report)
    messages.check(body, report)


def _check_ollama(body: dict[str, Any], report: Report) -> None:
    ollama.check_model(body, report)
    ollama.check(body, report)


RULES: Final[dict[ServerDialectName, DialectRules]] = {
    "chat": DialectRules(check=_check_chat),
    "responses": DialectRules(check=_check_responses),
    "messages": DialectRules(check=_check_messages, has_server_paths=True),
    "gemini": DialectRules(check=gemini.check, has_server_paths=True),
    "ollama": DialectRules(check=_check_ollama),
}
