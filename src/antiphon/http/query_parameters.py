"""The query parameters of a request."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from antiphon.errors import ClientFault
from antiphon.http.exchange import Exchange


class QueryParameters:
    """Validates query parameters; unknown ones are refused by name."""

    def __init__(self, exchange: Exchange, allowed: set[str]) -> None:
        query = exchange.scope["query_string"].decode("latin-1")
        try:
            self._values: dict[str, list[str]] = parse_qs(
                query, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
            )
        except ValueError:
            raise ClientFault("the query string cannot be decoded") from None
        for name in self._values.keys() - allowed:
            allowed_names = ", ".join(sorted(allowed - {"include[]"}))
            raise ClientFault(f"{name[:50]}: unknown parameter; expected one of {allowed_names}", param=name[:50])

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise ClientFault(f"{name}: expected once, got {len(values)} times", param=name)
        return values[0]

    def flag(self, name: str) -> bool:
        return self.one_of(name, ("true", "false"), "false") == "true"

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self.text(name)
        if value is not None and value not in words:
            expected = " or ".join(map(repr, words))
            raise ClientFault(f"{name}: expected {expected}, got {value[:50]!r}", param=name)
        return value or default

    def integer(self, name: str, minimum: int, maximum: int, default: int | None) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 16 or not minimum <= int(value) <= maximum:
            raise ClientFault(
                f"{name}: expected an integer from {minimum} to {maximum}, got {value[:50]!r}", param=name
            )
        return int(value)

    def includes(self) -> list[str]:
        return self._values.get("include", []) + self._values.get("include[]", [])


MAX_FIELDS: Final = 50
