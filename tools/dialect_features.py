"""A feature of the support table in docs/dialects.md: its form in each dialect, in a request or in an answer.

A dialect without an equivalent is absent. Then `mark` is a text that shows whether the feature was carried. If the hub
has no equivalent (`responses` is absent), the form of the client's dialect is expected at servers of other dialects.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from antiphon.dialects.dialect import ServerDialectName

Json = dict[str, Any]


class Feature(NamedTuple):
    """A feature and its form in each dialect."""

    name: str
    # The fields of a body that express the feature. Clients send them; servers and the hub must receive them.
    fields: dict[ServerDialectName, Json]
    # A text that shows that the feature was carried, in any form.
    mark: str = ""
    # A note for the table that describes the other form, if another form is used.
    note: str = ""
    # Texts that show the feature in another form, besides `mark`.
    other_marks: tuple[str, ...] = ()
    # A text whose absence shows the feature in another form.
    absent_mark: str = ""
    # Fields that are also sent, or replace fields of the same name, but are not expected.
    extra_fields: Mapping[ServerDialectName, Json] = MappingProxyType({})
    # The content of the reasoning envelope by dialect, and whether it is from the receiving server.
    sealed_reasoning: dict[ServerDialectName, Json] | None = None
    is_own_reasoning: bool = True


PIXEL: Final = "iVBORw0KGgo="
ARGUMENTS: Final = '{"city":"Bonn"}'
