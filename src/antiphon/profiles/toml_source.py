"""TOML with the place of every setting in it: values are read as a shape, and what is wrong is told with its file and line.

Every value is checked before the shape is made: an unknown name or a bad value is an error that says what came, what was wanted,
and which known name is closest. No file is read here.
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
from antiphon.profiles.suggestions import did_you_mean, suggestion_or_known_names
from antiphon.protocol.error_messages import describe_type, excerpt

#: The steps to a setting: names, and places in arrays.
SettingPath = tuple[str | int, ...]
_Shape = TypeVar("_Shape", bound=Struct)


class TomlSource:
    """A TOML text; what is wrong in it becomes an `error`."""

    def __init__(self, file: str, text: str, error: type[AntiphonError]) -> None:
        self.file = file
        self._error = error
        self._lines = text.replace("\r\n", "\n").split("\n")
        try:
            self.toml = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise error(f"{file}: not valid TOML: {problem}") from None

    def error_at(self, steps: SettingPath, problem: str) -> AntiphonError:
        """The error about a setting; one that is not there is told at what it would stand in."""
        while steps and not _leads_somewhere(self.toml, steps):
            steps = steps[:-1]
        where = f"{self.file}, line {self._line_of(steps)}" if steps else self.file
        return self._error(f"{where}: {problem}")

    def convert(self, values: dict[str, Any], shape: type[_Shape], at: SettingPath = (), label: str = "") -> _Shape:
        """`values`, which stand at a place in the source, as `shape`."""
        self._check_members(values, shape, at, label)
        try:
            return msgspec.convert(values, shape)
        except msgspec.ValidationError as error:  # each value is good by itself, so this is what the shape says of its values
            raise self.error_at(at, f"{label}{error}") from None

    def _check_members(self, values: dict[str, Any], shape: type[Struct], at: SettingPath, label: str) -> None:
        known = {member.encode_name: member for member in fields(shape)}
        for name, value in values.items():
            if name not in known:
                raise self.error_at((*at, name), f"{label}{name} is no known setting{suggestion_or_known_names(name, known)}")
            self._check(value, known[name].type, (*at, name), f"{label}{name}")
        for name, member in known.items():
            if member.required and name not in values:
                raise self.error_at(at, f"{label}{name} is missing: wanted {describe_toml_type(member.type)}")

    def _check(self, value: Any, type: Any, at: SettingPath, label: str) -> None:
        info = _info(type)
        table = _table_in(info)
        if table is not None and isinstance(value, dict):
            self._check_members(value, table, at, f"{label}.")
        elif isinstance(info, shapes.ListType) and _table_in(info.item_type) is not None and isinstance(value, list):
            for index, item in enumerate(value):
                self._check(item, _item_type(type), (*at, index), f"{label}[{index}]")
        else:
            self._check_value(value, type, info, at, label)

    def _check_value(self, value: Any, type: Any, info: shapes.Type, at: SettingPath, label: str) -> None:
        try:
            msgspec.convert(value, type)
        except msgspec.ValidationError:
            raise self.error_at(
                at, f"{label}: got {as_toml(value)}, wanted {describe_toml_type(type)}{_hint(value, info)}"
            ) from None

    def _line_of(self, steps: SettingPath) -> int:
        """The line on which a setting begins: the first whose addition makes it appear, since the TOML reader keeps no places."""
        return next(end for end in range(1, len(self._lines) + 1) if _has(self._lines[:end], steps))


def as_toml(value: Any) -> str:
    """A value as an author knows it, shortened."""
    # JSON has no word for these two, TOML has.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else excerpt(msgspec.json.encode(value))


def describe_toml_type(type: Any) -> str:
    """What may stand there, as an author knows it."""
    match _info(type):
        case shapes.FloatType(gt=low, le=high) if low is not None:
            return f"a number above {low}, at most {high}"
        case shapes.FloatType(ge=low, le=high) if low is not None:
            return f"a number from {low} to {high}"
        case shapes.ListType(item_type=shapes.UnionType(types=options)):
            said = " or ".join(describe_type(shapes.ListType(option)).removeprefix("an array of ") for option in options)
            return f"an array of {said.replace('objects', 'tables')}"
        case info:
            return describe_type(info).replace("an object", "a table").replace("objects", "tables")


def _hint(value: Any, info: shapes.Type) -> str:
    match info:
        case shapes.LiteralType(values=words) if isinstance(value, str):
            return did_you_mean(value, map(str, words))
        case _:
            return ""


def _leads_somewhere(toml: Any, steps: SettingPath) -> bool:
    try:
        for step in steps:
            toml = toml[step]
    except (LookupError, TypeError):
        return False
    return True


def _has(lines: list[str], steps: SettingPath) -> bool:
    for ending in ("", "]"):  # the second for lines that break off inside an array
        try:
            if _leads_somewhere(tomllib.loads("\n".join([*lines, ending])), steps):
                return True
        except tomllib.TOMLDecodeError:
            continue
    return False


def _info(type: Any) -> shapes.Type:
    """A type as an author of TOML knows it: no null, one kind of array, no notes."""
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
    """The shape of the table that may stand there."""
    options = info.types if isinstance(info, shapes.UnionType) else (info,)
    return next((option.cls for option in options if isinstance(option, shapes.StructType)), None)


def _item_type(type: Any) -> Any:
    return get_args(get_args(type)[0] if get_origin(type) is Annotated else type)[0]
