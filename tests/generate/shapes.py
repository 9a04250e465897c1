"""Documents made from our own types, with what is beyond the specification in them, and where in a document what
stands.

`documents(type)` are valid ones. `spots(document, type)` walks a document beside its type and tells every place that is ours to
judge: where it stands, what may stand there, and whether it could be left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import UNSET
from msgspec import inspect as shapes
from tests.generate.schema import json_values

from antiphon.protocol.base import EXTRA_NAME, UNKNOWN_TAG, Unknown
from antiphon.protocol.content import UnknownContent

Key = str | int


def documents(type: Any) -> SearchStrategy[Any]:
    """Valid documents of a type, small ones."""
    return _documents(_info(type))


def _documents(info: shapes.Type) -> SearchStrategy[Any]:
    match info:
        case shapes.StructType(cls=cls):
            return st.deferred(lambda: _unknown(cls) if issubclass(cls, Unknown) else _struct(cls))
        case shapes.UnionType(types=types):
            return st.one_of([_documents(option) for option in types])
        case shapes.ListType(item_type=item, min_length=least):
            return st.lists(_documents(item), min_size=least or 0, max_size=(least or 0) + 2)
        case shapes.DictType(value_type=value):
            return st.dictionaries(names, _documents(value), max_size=2)
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case shapes.EnumType(cls=cls):
            return st.sampled_from([member.value for member in cls])
        case shapes.StrType(min_length=least, pattern=pattern):
            return st.text(
                st.sampled_from("aZ0_-") if pattern else st.characters(codec="utf-8"), min_size=least or 0, max_size=6
            )
        case shapes.IntType(ge=low, le=high):
            return st.integers(low, high)
        case shapes.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case shapes.BoolType():
            return st.booleans()
        case shapes.NoneType():
            return st.none()
        case _:
            return json_values


@cache
def _struct(cls: type) -> SearchStrategy[dict[str, Any]]:
    info = _info(cls)
    assert isinstance(info, shapes.StructType)
    members = {field.encode_name: _documents(field.type) for field in _fields(cls)}
    optional = {field.encode_name for field in _fields(cls) if field.default is UNSET}
    return st.fixed_dictionaries(
        ({"type": st.just(info.tag)} if info.tag else {})
        | {name: members[name] for name in members if name not in optional},
        optional={name: members[name] for name in members if name in optional},
    )


@cache
def _unknown(cls: type) -> SearchStrategy[dict[str, Any]]:
    needed = {field.encode_name: _documents(field.type) for field in _fields(cls) if field.name not in ("kind", "raw")}
    return st.builds(
        lambda extra, kind, known: {**extra, "type": kind, **known},
        st.dictionaries(st.text(max_size=6), json_values, max_size=3),
        st.sampled_from([kind for kind in UNKNOWN_TYPES if kind or cls is not UnknownContent]),
        st.fixed_dictionaries(needed),
    )


class Spot(NamedTuple):
    """A place in a document."""

    path: str
    keys: tuple[Key, ...]
    info: shapes.Type
    required: bool  # whether it is a field that may not be left out

    @property
    def kinds(self) -> set[str]:
        """The kinds of JSON that may stand here."""
        return kinds_of(self.info)

    @property
    def is_map(self) -> bool:
        """Whether an object that stands here has values of one type, under any names."""
        options = _options(self.info)
        return any(
            isinstance(option, shapes.DictType) and not isinstance(option.value_type, shapes.AnyType)
            for option in options
        )

    @property
    def is_typed(self) -> bool:
        """Whether an object that stands here is told by its `type`."""
        options = _options(self.info)
        return any(isinstance(option, shapes.StructType) and option.tag for option in options)

    @property
    def words(self) -> set[str]:
        """The only strings that may stand here, if it is a matter of words; the empty set if it is not."""
        options = _options(self.info)
        if any(isinstance(option, shapes.StrType) for option in options):
            return set()
        return {word for option in options for word in _words(option)}


def spots(document: Any, type: Any) -> list[Spot]:
    """Every place in the document but its root."""
    return list(_spots(document, _info(type), "", ()))


def _spots(value: Any, info: shapes.Type, path: str, keys: tuple[Key, ...]) -> Iterator[Spot]:
    match _chosen(value, info):
        case shapes.StructType(cls=cls) if not issubclass(cls, Unknown):
            for field in _fields(cls):
                if field.encode_name in value:
                    at = f"{path}.{field.encode_name}" if path else field.encode_name
                    yield Spot(at, (*keys, field.encode_name), field.type, field.required)
                    yield from _spots(value[field.encode_name], field.type, at, (*keys, field.encode_name))
        case shapes.ListType(item_type=item):
            for number, member in enumerate(value):
                yield Spot(f"{path}[{number}]", (*keys, number), item, False)
                yield from _spots(member, item, f"{path}[{number}]", (*keys, number))
        case shapes.DictType(value_type=inner):
            for name, member in value.items():
                yield Spot(f"{path}.{name}", (*keys, name), inner, False)
                yield from _spots(member, inner, f"{path}.{name}", (*keys, name))


def _chosen(value: Any, info: shapes.Type) -> shapes.Type | None:
    """Of a union, the option that a value took."""
    options = _options(info)
    fitting = [option for option in options if kind_of(value) in kinds_of(option)]
    tagged = [option for option in fitting if isinstance(option, shapes.StructType) and option.tag]
    if tagged:
        return next((option for option in tagged if option.tag == value["type"]), None)
    return fitting[0]


def _options(info: shapes.Type) -> tuple[shapes.Type, ...]:
    return info.types if isinstance(info, shapes.UnionType) else (info,)


def kind_of(value: Any) -> str:
    return KIND_OF_CLASS[type(value)]


def kinds_of(info: shapes.Type) -> set[str]:
    if isinstance(info, shapes.UnionType):
        return {kind for option in info.types for kind in kinds_of(option)}
    return KINDS.get(type(info), set(KIND_OF_CLASS.values()))


def without(document: Any, keys: tuple[Key, ...]) -> Any:
    """The document with what stands there left out."""
    changed = json.loads(json.dumps(document))
    del at(changed, keys[:-1])[keys[-1]]
    return changed


def replaced(document: Any, keys: tuple[Key, ...], value: Any) -> Any:
    """The document with something else there."""
    changed = json.loads(json.dumps(document))
    at(changed, keys[:-1])[keys[-1]] = value
    return changed


def at(document: Any, keys: tuple[Key, ...]) -> Any:
    """What stands there."""
    for key in keys:
        document = document[key]
    return document


def _words(info: shapes.Type) -> list[str]:
    match info:
        case shapes.LiteralType(values=values):
            return [str(value) for value in values]
        case shapes.EnumType(cls=cls):
            return [member.value for member in cls]
        case _:
            return []


@cache
def _info(type: Any) -> shapes.Type:
    return shapes.type_info(type)


@cache
def _fields(cls: type) -> list[shapes.Field]:
    info = _info(cls)
    assert isinstance(info, shapes.StructType)
    return [field for field in info.fields if field.encode_name != EXTRA_NAME]


UNKNOWN_TYPES: Final = ("acme:thing", "acme:thing.done", "not_invented_yet", UNKNOWN_TAG, EXTRA_NAME, "")
names: Final = st.text(st.sampled_from("abyzABYZ019_-:"), min_size=1, max_size=6)
KIND_OF_CLASS: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
KINDS: Final[dict[type, set[str]]] = {
    shapes.StrType: {"string"},
    shapes.LiteralType: {"string"},
    shapes.EnumType: {"string"},
    shapes.IntType: {"integer"},
    shapes.FloatType: {"integer", "number"},
    shapes.BoolType: {"boolean"},
    shapes.NoneType: {"null"},
    shapes.ListType: {"array"},
    shapes.DictType: {"object"},
    shapes.StructType: {"object"},
}
