"""What every shape of the protocol has in common: unknown fields are kept, unknown types are kept (ITEM-5, REQ-7).

A `Shape` has a place for the fields it does not know, an `Unknown` is a whole object of a type nobody knows. Both hold raw
bytes. They are not written to the wire as they stand here: `codec.encode` puts them back where they were.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

# Both spellings begin alike, so that one search through encoded bytes tells whether anything has to be put back.
RAW_MARK: Final = b'"antiphon:raw'
EXTRA_NAME: Final = "antiphon:raw_fields"
UNKNOWN_TAG: Final = "antiphon:raw"
# Nothing is both longer and shorter: msgspec never decodes into these places, so no client can fill them by using our spellings.
NEVER_DECODED: Final = Meta(min_length=1, max_length=0)

# B-3: an extension type is a slug, a colon and a name.
EXTENSION_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*:[a-zA-Z0-9][a-zA-Z0-9_.-]*")


# Frozen trees of what was read can form no cycle: the collector need not follow them (`gc=False`).


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A typed object of the protocol; `extra` keeps the fields it has no name for."""

    extra: Annotated[dict[str, Raw], NEVER_DECODED] | UnsetType = field(default=UNSET, name=EXTRA_NAME)


class Unknown(Struct, frozen=True, kw_only=True, gc=False):
    """An object whose `type` we do not know, kept as the bytes it came in."""

    kind: Annotated[str, NEVER_DECODED]
    raw: Raw

    def raw_members(self) -> dict[str, Raw]:
        """Its members, each still raw."""
        return msgspec.json.decode(self.raw, type=dict[str, Raw])

    def string_member(self, name: str) -> str | None:
        """The member `name` if it is a string."""
        value: Any = msgspec.json.decode(self.raw_members().get(name, Raw(b"null")))
        return value if isinstance(value, str) else None


def is_extension_type(kind: str) -> bool:
    """Whether `kind` is spelled `slug:name` (B-3, ITEM-5)."""
    return EXTENSION_TYPE.fullmatch(kind) is not None
