"""`antiphon.types`: the exported names."""

from __future__ import annotations

import msgspec

from antiphon import types
from antiphon.protocol.events import TYPE_OF_EVENT
from antiphon.protocol.items import Item, ItemParam
from antiphon.protocol.tools import ToolParam


def test_types_exports_every_event_item_and_tool() -> None:
    """A program can name every type that it may get in a response or a stream, or send in a request."""
    members = {*TYPE_OF_EVENT, *Item.__args__, *ItemParam.__args__, *ToolParam.__args__}
    assert {member.__name__ for member in members} <= set(types.__all__)


def test_types_exports_every_type_in_a_field_of_an_exported_type() -> None:
    exported = {id(getattr(types, name)) for name in types.__all__}
    structs = [getattr(types, name) for name in types.__all__ if _is_struct(getattr(types, name))]
    used = {
        member for struct in structs for field in msgspec.structs.fields(struct) for member in _structs_in(field.type)
    }
    assert {struct.__name__ for struct in used if id(struct) not in exported} == set()


def _structs_in(hint: object) -> set[type]:
    if _is_struct(hint):
        assert isinstance(hint, type)
        return {hint}
    return {struct for member in getattr(hint, "__args__", ()) for struct in _structs_in(member)}


def _is_struct(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)
