"""`Report`: where rules send what is wrong with a request body. A subclass decides whether the check continues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

Rule = Literal[
    "discriminator",
    "content_type",
    "tool_form",
    "missing_field",
    "unknown_field",
    "orphan_result",
    "unanswered_call",
    "long_id",
    "role",
    "order",
    "schema",
    "name",
    "value",
    "combination",
    "media",
    "reasoning",
    "unsupported",
]
T = TypeVar("T")


class Violation(Struct, frozen=True, kw_only=True):
    """One violation of a rule."""

    rule: Rule
    #: The path in the body, in the provider's spelling: `messages[0].role`, `messages.0.content.1.text.detail`.
    path: str
    #: What is wrong, in our words.
    problem: str
    #: What is wrong, in the provider's words.
    message: str
    #: The path that the provider's error names.
    param: str | None = None
    code: str | None = None
    #: Whether every server of the dialect should refuse it. If not, only some servers do.
    is_certain: bool = True
    #: The profile settings with which the gateway avoids it: `quirks: name`, or `wire.name = value`.
    settings: tuple[str, ...] = ()


class Report(ABC):
    """Receives the violations of one request body. `receive` may raise to end the check.

    The methods `walk` and `may_check_schema` bound the check; here they allow everything.
    """

    def add(
        self,
        rule: Rule,
        path: str,
        message: str,
        problem: str = "",
        *,
        param: str | None = None,
        code: str | None = "invalid_value",
        is_certain: bool = True,
        settings: tuple[str, ...] = (),
    ) -> None:
        """Report a violation. Without a `problem`, the provider's words are used; without a `param`, the path."""
        self.receive(
            Violation(
                rule=rule,
                path=path,
                problem=problem or message,
                message=message,
                param=path if param is None else param,
                code=code,
                is_certain=is_certain,
                settings=settings,
            )
        )

    @abstractmethod
    def receive(self, violation: Violation) -> None:
        """Receive a violation that strict servers refuse."""

    def suspect(self, rule: Rule, path: str, problem: str, *, settings: tuple[str, ...] = ()) -> None:
        """Report something that strict servers accept and a few servers refuse. By default it is ignored."""
        del rule, path, problem, settings

    def walk(self, values: Iterable[T]) -> Iterator[T]:
        """Yield values that are checked one by one."""
        yield from values

    def may_check_schema(self, path: str) -> bool:  # noqa: ARG002
        """Return whether the schema at this path may be checked. If not, the check of the whole schema ends."""
        return True


def as_json(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    try:
        text = msgspec.json.encode(value).decode()
    except ValueError:  # a lone surrogate, or nesting that is too deep
        return "something"
    return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"


MAX_EXCERPT: Final = 80  # characters
