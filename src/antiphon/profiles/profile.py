"""A profile: what differs between servers of one dialect, as data. Text in, a checked `Profile` out; no file is read here.

Every setting is checked when the profile is read: an unknown name or a bad value is an error that says in which file and line it
stands, what came, what was wanted, and which known name is closest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec import inspect as shapes
from msgspec.structs import fields, replace

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ProfileError
from antiphon.profiles.closest import closest, did_you_mean
from antiphon.profiles.quirks import QUIRKS, Quirk
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.wording import describe, excerpt

Dialect = Literal["chat", "responses"]
Wire = ChatWire | ResponsesWire
FindParent = Callable[[str], "Profile"]
_Path = tuple[str | int, ...]
_Shape = TypeVar("_Shape", bound=Struct)


class Profile(Struct, frozen=True, kw_only=True):
    """What one kind of server takes: quirks that reshape the request, wire options that the dialect reads."""

    name: str
    dialect: Dialect
    about: str
    quirks: tuple[Quirk, ...]
    wire: Wire

    def prepare(self, request: Request) -> tuple[Request, Losses]:
        """The request as this server takes it, and what was lost. A loss has the path under which its quirk saw the thing."""
        losses = Losses()
        for quirk in self.quirks:
            request = quirk.apply(request, losses)
        return request, losses


class ProfileFile(Struct, frozen=True, kw_only=True):
    """A profile as it is written."""

    about: str
    dialect: Dialect | UnsetType = UNSET
    extends: str | UnsetType = UNSET
    quirks: list[Any] = field(default_factory=list)
    wire: dict[str, Any] = field(default_factory=dict)


def parse_profile(text: str, name: str, *, file: str = "", parent: FindParent | None = None) -> Profile:
    """The profile in `text`; `file` is what errors call it, `parent` finds the profile it extends."""
    source = _Source(file or name, text)
    written = _read(source, source.toml, ProfileFile)
    base = _base(source, written, parent)
    return Profile(
        name=name,
        dialect=base.dialect,
        about=written.about,
        quirks=_quirks(source, written.quirks, base.quirks),
        wire=_wire(source, written.wire, base.wire),
    )


class _Source:
    """One profile's text, and the place of every setting in it."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.replace("\r\n", "\n").split("\n")
        try:
            self.toml = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ProfileError(f"{file}: not valid TOML: {error}") from None

    def fault(self, path: _Path, problem: str) -> ProfileError:
        return ProfileError(f"{self.file}, line {self._line_of(path)}: {problem}")

    def _line_of(self, path: _Path) -> int:
        """The line on which a setting begins: the first whose addition makes it appear, since the TOML reader keeps no places."""
        return next(end for end in range(1, len(self.lines) + 1) if _has(self.lines[:end], path))


def _has(lines: list[str], path: _Path) -> bool:
    for ending in ("", "]"):  # the second for lines that break off inside an array
        try:
            found: Any = tomllib.loads("\n".join([*lines, ending]))
            for step in path:
                found = found[step]
            return True
        except (tomllib.TOMLDecodeError, LookupError):
            continue
    return False


def _read(source: _Source, values: dict[str, Any], shape: type[_Shape], at: _Path = (), label: str = "") -> _Shape:
    """`values`, which stand at a place in the source, as `shape`."""
    known = {member.name: member for member in fields(shape)}
    for name, value in values.items():
        if name not in known:
            raise source.fault((*at, name), f"{label}{name} is no known setting{closest(name, known)}")
        _check(source, value, known[name].type, (*at, name), f"{label}{name}")
    for name, member in known.items():
        if member.required and name not in values:
            problem = f"{label}{name} is missing: wanted {describe(_info(member.type))}"
            raise source.fault(at, problem) if at else ProfileError(f"{source.file}: {problem}")
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:  # each value is good by itself, so this is what the shape says of its values
        raise source.fault(at, f"{label}{error}") from None


def _check(source: _Source, value: Any, type: Any, at: _Path, label: str) -> None:
    try:
        msgspec.convert(value, type)
    except msgspec.ValidationError:
        info = _info(type)
        hint = did_you_mean(value, map(str, info.values)) if isinstance(info, shapes.LiteralType) and isinstance(value, str) else ""
        raise source.fault(at, f"{label}: got {excerpt(msgspec.json.encode(value))}, wanted {describe(info)}{hint}") from None


def _info(type: Any) -> shapes.Type:
    """A type as an author of a profile knows it: TOML has one kind of array."""
    info = shapes.type_info(type)
    return shapes.ListType(info.item_type) if isinstance(info, shapes.VarTupleType) else info


def _base(source: _Source, written: ProfileFile, parent: FindParent | None) -> Profile:
    """What the profile builds on: the one it extends, or its dialect as it is."""
    if written.extends is UNSET:
        if written.dialect is UNSET:
            raise ProfileError(f"{source.file}: wanted a dialect ({', '.join(WIRES)}) or a profile to extend, got neither")
        return Profile(name="", dialect=written.dialect, about="", quirks=(), wire=WIRES[written.dialect]())
    try:
        if parent is None:
            raise ProfileError("there is no other profile to be found from here")
        base = parent(written.extends)
    except ProfileError as error:
        raise source.fault(("extends",), f"extends {written.extends!r}: {error}") from None
    if written.dialect not in (UNSET, base.dialect):
        problem = f"dialect: got {written.dialect!r}, but {written.extends!r}, which it extends, has {base.dialect!r}"
        raise source.fault(("dialect",), problem)
    return base


def _quirks(source: _Source, entries: list[Any], inherited: tuple[Quirk, ...]) -> tuple[Quirk, ...]:
    """The inherited quirks, then these; `-name` takes one out again."""
    quirks = list(inherited)
    for index, entry in enumerate(entries):
        at = ("quirks", index)
        match entry:
            case str() if entry.startswith("-"):
                kept = [quirk for quirk in quirks if quirk.name != entry[1:]]
                if len(kept) == len(quirks):
                    hint = closest(entry[1:], {quirk.name for quirk in quirks})
                    raise source.fault(at, f"quirks: {entry!r} takes out what is not there{hint}")
                quirks = kept
            case str():
                quirks.append(_quirk(source, entry, {}, at))
            case {"name": str() as name}:
                options = {option: value for option, value in entry.items() if option != "name"}
                quirks.append(_quirk(source, name, options, at))
            case _:
                wanted = "a name, or a table with a name and options"
                raise source.fault(at, f"quirks: got {excerpt(msgspec.json.encode(entry))}, wanted {wanted}")
    return tuple(quirks)


def _quirk(source: _Source, name: str, options: dict[str, Any], at: _Path) -> Quirk:
    if name not in QUIRKS:
        raise source.fault(at, f"quirks: {name!r} is no known quirk{closest(name, QUIRKS)}")
    return Quirk(name, _read(source, options, QUIRKS[name].options, at, f"quirk {name}: "))


def _wire(source: _Source, values: dict[str, Any], base: Wire) -> Wire:
    given = _read(source, values, type(base), ("wire",), "wire.")
    return replace(base, **{name: getattr(given, name) for name in values})


WIRES: Final[dict[Dialect, type[ChatWire] | type[ResponsesWire]]] = {"chat": ChatWire, "responses": ResponsesWire}
