"""A feature of the support table in docs/dialects.md: its form in each dialect, in a request or in an answer.

A dialect without an equivalent is absent; then `mark` is a text that shows whether the feature was carried. If the hub has no
equivalent (`responses` is absent), the form of the client's dialect is expected at servers of the other dialects.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from antiphon.dialects.dialect import ServerDialectName

Json = dict[str, Any]


class Feature(NamedTuple):
    """`said`: fields of a body that express it. Clients send them, and servers and the hub are expected to receive them."""

    name: str
    said: dict[ServerDialectName, Json]
    mark: str = ""
    # A description of its form where another form is used; the table shows it.
    how: str = ""
    # Texts that show it in another form, besides `mark`.
    other_marks: tuple[str, ...] = ()
    # Fields that are sent instead of `said`, if more fields are needed than are expected.
    sent: Mapping[ServerDialectName, Json] = MappingProxyType({})
    # The content of the reasoning envelope by dialect, and whether the receiving server made it.
    sealed: dict[ServerDialectName, Json] | None = None
    is_own: bool = True


PIXEL: Final = "iVBORw0KGgo="
ARGUMENTS: Final = '{"city":"Bonn"}'
