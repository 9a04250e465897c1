"""A feature, as the support table of docs/dialects.md asks about it: how every dialect says it, in a request or in an answer.

A dialect that has no words for it is absent; `mark` is a word by which what became of it is known anyway. Where the hub has no
words (`responses` is absent), what clients of one dialect say is looked for at servers of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from antiphon.profiles import Dialect

Json = dict[str, Any]


class Feature(NamedTuple):
    """`said`: members of a body that say it. They are sent by clients, and looked for in what servers and the hub get."""

    name: str
    said: dict[Dialect, Json]
    mark: str = ""
    # What it takes the form of where it is said by other means, in words: the table shows them.
    how: str = ""
    # Words by which it is known in another form, beside `mark`, which is its own.
    other_marks: tuple[str, ...] = ()
    # What is sent in place of what is looked for, where the one does not come without something else.
    sent: Mapping[Dialect, Json] = MappingProxyType({})
    # What is in the envelope of the reasoning that a server of each dialect made, and whether the server that is asked made it.
    sealed: dict[Dialect, Json] | None = None
    is_own: bool = True


PIXEL: Final = "iVBORw0KGgo="
ARGUMENTS: Final = '{"city":"Bonn"}'
