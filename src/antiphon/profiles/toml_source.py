"""Convert TOML to Structs, with errors that name the file and the line of a setting. No file is read here.

Every value is checked before conversion: the error for an unknown name or an invalid value has the value, what is
allowed, and the closest valid name.
"""

from __future__ import annotations

import math
import tomllib
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec import inspect as shapes
from msgspec.structs import fields

from antiphon.errors import AntiphonError
from antiphon.protocol.error_messages import describe_type, excerpt
from antiphon.protocol.suggestions import did_you_mean, suggest_names

#: The path of a setting: names, and indexes in arrays.
SettingPath = tuple[str | int, ...]
_Shape = TypeVar("_Shape", bound=Struct)


class TomlSource:
    """A TOML text; problems in it raise `error`."""

    def __init__(self, file: str, text: str, error: type[AntiphonError]) -> None:
        self.file = file
        self._error = error
        self._lines = text.replace("\r\n", "\n").split("\n")
        try:
            self.toml = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise error(f"{file}: not valid TOML: {problem}") from None

    def error_at(self, path: SettingPath, problem: str) -> AntiphonError:
        """Return the error about a setting. For a missing setting it has the line of the enclosing table."""
        while path and not _has_setting(self.toml, path):
            path = path[:-1]
        location = f"{self.file}, line {self._line_of(path)}" if path else self.file
        return self._error(f"{location}: {problem}")

    def convert(self, values: dict[str, Any], shape: type[_Shape], path: SettingPath = (), label: str = "") -> _Shape:
        """Convert `values`, which are at `path` in the source, to `shape`."""
        self._check_members(values, shape, path, label)
        try:
            return msgspec.convert(values, shape)
        except msgspec.ValidationError as error:  # each value is valid alone: the error is from the shape's own checks
            raise self.error_at(path, f"{label}{error}") from None

    def valid_part(self, shape: type[_Shape]) -> tuple[_Shape, set[SettingPath]]:
        """The settings that are valid, as `shape`, and the paths of required settings that are invalid or missing: they
        have a placeholder. The shape must have no checks of its own."""
        placeholders: set[SettingPath] = set()
        values = _valid_members(self.toml, shape, (), placeholders)
        return msgspec.convert(values, shape), placeholders

    def _check_members(self, values: dict[str, Any], shape: type[Struct], path: SettingPath, label: str) -> None:
        """Raise all problems of a table, one in each line."""
        members = {member.encode_name: member for member in fields(shape)}
        problems: list[str] = []
        for name, value in values.items():
            setting = (*path, name)
            if name not in members:
                unknown = f"{label}{name}: unknown setting{suggest_names(name, members)}"
                problems.append(str(self.error_at(setting, unknown)))
                continue
            try:
                self._check_setting(value, members[name].type, setting, f"{label}{name}")
            except AntiphonError as error:
                problems.append(str(error))
        for name, member in members.items():
            if member.required and name not in values:
                missing = f"{label}{name} is missing: expected {describe_toml_type(member.type)}"
                problems.append(str(self.error_at(path, missing)))
        if problems:
            raise self._error("\n".join(problems))

    def _check_setting(self, value: Any, type: Any, path: SettingPath, label: str) -> None:
        info = _toml_type(type)
        table = _table_in(info)
        if table is not None and isinstance(value, dict):
            self._check_members(value, table, path, f"{label}.")
        elif isinstance(info, shapes.ListType) and _table_in(info.item_type) is not None and isinstance(value, list):
            self._check_items(value, _item_type(type), path, label)
        else:
            self._check_value(value, type, info, path, label)

    def _check_items(self, items: list[Any], type: Any, path: SettingPath, label: str) -> None:
        problems: list[str] = []
        for index, item in enumerate(items):
            try:
                self._check_setting(item, type, (*path, index), f"{label}[{index}]")
            except AntiphonError as error:
                problems.append(str(error))
        if problems:
            raise self._error("\n".join(problems))

    def _check_value(self, value: Any, type: Any, info: shapes.Type, path: SettingPath, label: str) -> None:
        try:
            msgspec.convert(value, type)
        except msgspec.ValidationError:
            raise self.error_at(
                path,
                f"{label}: expected {describe_toml_type(type)}, got {as_toml(value)}{_suggest_literal(value, info)}",
            ) from None

    def _line_of(self, path: SettingPath) -> int:
        """Return the line on which a setting begins: the first line whose addition makes it appear. The TOML parser
        reports no lines."""
        return next(end for end in range(1, len(self._lines) + 1) if _lines_have_setting(self._lines[:end], path))


def _valid_members(
    values: dict[str, Any], shape: type[Struct], path: SettingPath, placeholders: set[SettingPath]
) -> dict[str, Any]:
    """A table without its invalid settings, with placeholders for required ones."""
    members: dict[str, Any] = {}
    for member in fields(shape):
        name, setting = member.encode_name, (*path, member.encode_name)
        value = _valid_value(values.get(name), member.type, setting, placeholders)
        if value is None and member.required:
            value = _placeholder(member.type)
            placeholders.add(setting)
        if value is not None:
            members[name] = value
    return members


def _valid_value(value: Any, type: Any, path: SettingPath, placeholders: set[SettingPath]) -> Any:
    """A value, or its valid part if it has tables; None if it is invalid."""
    info = _toml_type(type)
    table = _table_in(info)
    if table is not None and isinstance(value, dict):
        return _valid_members(value, table, path, placeholders)
    if isinstance(info, shapes.ListType) and _table_in(info.item_type) is not None and isinstance(value, list):
        items = [_valid_value(item, _item_type(type), (*path, index), placeholders) for index, item in enumerate(value)]
        return None if None in items else items  # without an item, the others would have other indexes
    try:
        msgspec.convert(value, type)
    except msgspec.ValidationError:
        return None
    return value


def _placeholder(type: Any) -> Any:
    match _toml_type(type):
        case shapes.LiteralType(values=literals):
            return literals[0]
        case shapes.ListType():
            return []
        case _:
            return ""


def as_toml(value: Any) -> str:
    """Render a value as TOML, shortened."""
    # JSON has no infinity and no NaN; TOML has both.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else excerpt(msgspec.json.encode(value))


def describe_toml_type(type: Any) -> str:
    """Describe the allowed values of a type in terms of TOML."""
    match _toml_type(type):
        case shapes.FloatType(gt=low, le=high) if low is not None:
            return f"a number above {low}, at most {high}"
        case shapes.FloatType(ge=low, le=high) if low is not None:
            return f"a number from {low} to {high}"
        case shapes.ListType(item_type=shapes.UnionType(types=options)):
            alternatives = " or ".join(
                describe_type(shapes.ListType(option)).removeprefix("an array of ") for option in options
            )
            return f"an array of {alternatives.replace('objects', 'tables')}"
        case info:
            return describe_type(info).replace("an object", "a table").replace("objects", "tables")


def _suggest_literal(value: Any, info: shapes.Type) -> str:
    match info:
        case shapes.LiteralType(values=literals) if isinstance(value, str):
            return did_you_mean(value, map(str, literals))
        case _:
            return ""


def _has_setting(toml: Any, path: SettingPath) -> bool:
    try:
        for step in path:
            toml = toml[step]
    except (LookupError, TypeError):
        return False
    return True


def _lines_have_setting(lines: list[str], path: SettingPath) -> bool:
    for ending in ("", "]"):  # the second closes an array that is open after these lines
        try:
            if _has_setting(tomllib.loads("\n".join([*lines, ending])), path):
                return True
        except tomllib.TOMLDecodeError:
            continue
    return False


def _toml_type(type: Any) -> shapes.Type:
    """Return a type in terms of TOML: no null, one kind of array, no metadata."""
    info = shapes.type_info(type)
    if isinstance(info, shapes.Metadata):
        info = info.type
    match info:
        case shapes.VarTupleType(item_type=item):
            return shapes.ListType(item)
        case shapes.UnionType(types=types):
            values = tuple(option for option in types if not isinstance(option, shapes.NoneType))
            return values[0] if len(values) == 1 else shapes.UnionType(values)
    return info


def _table_in(info: shapes.Type) -> type[Struct] | None:
    """Return the Struct of a table that the type allows; None if it allows no table."""
    options = info.types if isinstance(info, shapes.UnionType) else (info,)
    return next((option.cls for option in options if isinstance(option, shapes.StructType)), None)


def _item_type(type: Any) -> Any:
    return get_args(get_args(type)[0] if get_origin(type) is Annotated else type)[0]
