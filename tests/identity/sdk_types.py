"""Reads the type definitions of the official SDKs: which fields an object has, which are required, and which types a
field may have. Typed dictionaries (requests) and models of pydantic (answers) look the same from here."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Union

import pydantic
import typing_extensions


class Field(NamedTuple):
    """A member of an object, by its name in JSON."""

    name: str
    hint: Any
    is_required: bool


@cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """The fields of an object; empty if it has none of its own."""
    if typing_extensions.is_typeddict(kind):
        hints = typing_extensions.get_type_hints(kind, include_extras=True)
        return tuple(_typed_dict_field(name, hint, kind) for name, hint in hints.items())
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return tuple(
            Field(each.alias or name, _model_hint(each), each.is_required())
            for name, each in kind.model_fields.items()
            if not each.exclude
        )
    return ()


@cache
def is_object(kind: Any) -> bool:
    """Whether a type is an object whose fields the SDK names."""
    return typing_extensions.is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel))


@cache
def members_of(hint: Any) -> tuple[Any, ...]:
    """The types that a hint allows: the members of a union without nested unions, or the hint itself."""
    hint = plain_hint(hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        return tuple(dict.fromkeys(inner for each in typing.get_args(hint) for inner in members_of(each)))
    return (hint,)


def plain_hint(hint: Any) -> Any:
    """A hint without `Required`, `Annotated` and names of aliases."""
    while True:
        if typing.get_origin(hint) in WRAPPERS:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing_extensions.TypeAliasType):
            hint = hint.__value__
        elif isinstance(hint, typing.TypeVar):
            hint = Any
        else:
            return hint


@cache
def item_hint(hint: Any) -> Any:
    """The type of the items of a list; None for any other type."""
    origin = typing.get_origin(hint)
    if hint in (list, tuple):
        return Any
    if origin is None or is_object(origin) or origin in MAPPINGS:
        return None
    is_list = isinstance(origin, type) and (
        origin in (list, set, tuple) or issubclass(origin, collections.abc.Iterable) or origin.__name__ in LISTS
    )
    return typing.get_args(hint)[0] if is_list else None


@cache
def value_hint(hint: Any) -> Any:
    """The type of the values of a mapping; None for any other type."""
    if hint in MAPPINGS:
        return Any
    if typing.get_origin(hint) in MAPPINGS:
        return typing.get_args(hint)[1]
    return None


@cache
def words_of(hint: Any) -> tuple[Any, ...]:
    """The values of a literal or an enumeration."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(member.value for member in hint)
    return ()


@cache
def objects_below(hint: Any) -> tuple[Any, ...]:
    """The objects that a hint names itself: through unions, lists and mappings, but not through other objects."""
    found: dict[Any, None] = {}
    for member in members_of(hint):
        if is_object(member):
            found[member] = None
        elif (inner := item_hint(member) or value_hint(member)) is not None:
            found |= dict.fromkeys(objects_below(inner))
    return tuple(found)


def name_of(kind: Any) -> str:
    """The name of a type, with the class it stands in. Several modules of an SDK may use one name."""
    return str(kind.__qualname__)


def full_name_of(kind: Any) -> str:
    """The name of a type with the last part of its module."""
    return f"{kind.__module__.rpartition('.')[2]}.{name_of(kind)}"


def _typed_dict_field(name: str, hint: Any, kind: Any) -> Field:
    is_required = typing.get_origin(hint) in REQUIRED or (kind.__total__ and typing.get_origin(hint) not in OPTIONAL)
    return Field(_alias(hint) or name, hint, is_required)


def _alias(hint: Any) -> str | None:
    """The name in JSON that the SDK notes beside a type."""
    while typing.get_origin(hint) in WRAPPERS:
        for note in typing.get_args(hint)[1:]:
            if alias := getattr(note, "alias", None):
                return str(alias)
        hint = typing.get_args(hint)[0]
    return None


def _model_hint(field: Any) -> Any:
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


REQUIRED: Final = (typing.Required, typing_extensions.Required)
OPTIONAL: Final = (typing.NotRequired, typing_extensions.NotRequired)
WRAPPERS: Final = (*REQUIRED, *OPTIONAL, Annotated)
MAPPINGS: Final = (dict, collections.abc.Mapping)
#: Protocols of SDKs that stand for lists.
LISTS: Final = ("SequenceNotStr",)
