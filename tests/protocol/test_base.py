"""Common parts of every shape: unknown members, and the spelling of extension types."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw

from antiphon.protocol.base import is_extension_type
from antiphon.protocol.content import InputText
from antiphon.protocol.items import UnknownItem

ITEM = UnknownItem(kind="acme:x", raw=Raw(b'{"type":"acme:x","id":"i","n":1.0,"none":null}'))


@pytest.mark.parametrize("kind", ["acme:thing", "vtcode:file_change", "a1-b:C.d_e-f", "0:0"])
def test_extension_type_is_a_slug_a_colon_and_a_name(kind: str) -> None:
    """B-3, ITEM-5."""
    assert is_extension_type(kind)


@pytest.mark.parametrize(
    "kind", ["message", ":x", "acme:", "Acme:x", "acme:x:y", "ac me:x", "acme:x\n", "-acme:x", "acme:.x", ""]
)
def test_other_types_are_no_extension_types(kind: str) -> None:
    """B-3."""
    assert not is_extension_type(kind)


def test_raw_members_of_an_unknown_object_are_bytes() -> None:
    assert {name: bytes(raw) for name, raw in ITEM.raw_members().items()} == {
        "type": b'"acme:x"',
        "id": b'"i"',
        "n": b"1.0",
        "none": b"null",
    }


def test_string_member_returns_only_strings() -> None:
    assert [ITEM.string_member(name) for name in ("id", "n", "none", "gone")] == ["i", None, None, None]


def test_shape_with_known_fields_has_no_extra() -> None:
    assert InputText(text="x").extra is UNSET
