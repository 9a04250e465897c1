"""Base classes of the protocol types, which keep unknown fields and unknown types (ITEM-5, REQ-7).

A `Shape` keeps unknown fields; an `Unknown` is a whole object of unknown type. Both hold raw bytes, which
`codec.encode` writes back in their places.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

# Both names begin alike, so that one search in the encoded bytes finds whether raw bytes must be restored. They begin
# with a byte that is rare in texts and that JSON does not escape: a search for one byte takes a twentieth of the time.
RAW_MARK_BYTE: Final = b"\x7f"
RAW_MARK: Final = b'"\x7fantiphon:raw'
EXTRA_NAME: Final = "\x7fantiphon:raw_fields"
UNKNOWN_TAG: Final = "\x7fantiphon:raw"
# No value satisfies both limits, so msgspec never decodes into these fields and no client can fill them by their names.
NEVER_DECODED: Final = Meta(min_length=1, max_length=0)

# B-3: an extension type is a slug, a colon and a name.
EXTENSION_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*:[a-zA-Z0-9][a-zA-Z0-9_.-]*")


# Decoded trees are frozen and have no cycles, so the garbage collector need not track them (`gc=False`).


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A typed object of the protocol; `extra` keeps unknown fields."""

    extra: Annotated[dict[str, Raw], NEVER_DECODED] | UnsetType = field(default=UNSET, name=EXTRA_NAME)


class Unknown(Struct, frozen=True, kw_only=True, gc=False):
    """An object of unknown `type`, kept as raw bytes."""

    kind: Annotated[str, NEVER_DECODED]
    raw: Raw

    def raw_members(self) -> dict[str, Raw]:
        """The members of the object as raw bytes."""
        return msgspec.json.decode(self.raw, type=dict[str, Raw])

    def string_member(self, name: str) -> str | None:
        """The member `name` if it is a string."""
        value: Any = msgspec.json.decode(self.raw_members().get(name, Raw(b"null")))
        return value if isinstance(value, str) else None


def is_extension_type(kind: str) -> bool:
    """Whether `kind` has the form `slug:name` (B-3, ITEM-5)."""
    return EXTENSION_TYPE.fullmatch(kind) is not None
