"""Parse a profile from TOML text into a checked `Profile`. No file is read here.

Every setting is checked: the error for an unknown name or an invalid value has the file, the line, the value, what is
allowed, and the closest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS, Wire
from antiphon.errors import ProfileError
from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.reasoning import foreign_reasoning_as_text
from antiphon.profiles.toml_source import SettingPath, TomlSource, as_toml
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.suggestions import suggest_names

# Reasoning by another or an unknown maker is left out, or sent as text of the assistant (RSN-3).
ForeignReasoning = Literal["drop", "text"]
FindParent = Callable[[str], "Profile"]


class Quirk(Struct, frozen=True):
    """An entry of a profile: the name of a quirk, and its checked options."""

    name: str
    options: Struct

    def apply(self, request: Request, losses: Losses) -> Request:
        quirk = QUIRKS[self.name]
        return quirk.apply(request, losses, self.options) if getattr(request, quirk.field, True) else request


class Profile(Struct, frozen=True, kw_only=True):
    """What one kind of server accepts: quirks that change the request, wire options of the dialect, headers."""

    name: str
    dialect: ServerDialectName
    about: str
    quirks: tuple[Quirk, ...]
    wire: Wire
    #: The wire options for clients of the same dialect.
    own_client_wire: Wire
    #: Headers of every request to the server.
    headers: dict[str, str] = field(default_factory=dict)
    #: The header with the key. Only `authorization` has the prefix `Bearer`.
    key_header: str = "authorization"
    #: Headers that are copied from the request of a client of the same dialect.
    pass_headers: tuple[str, ...] = ()
    foreign_reasoning: ForeignReasoning = "drop"

    @property
    def accepts_images(self) -> bool:
        """Whether images are sent to the server: no wire option and no quirk replaces them."""
        names = {quirk.name for quirk in self.quirks}
        return getattr(self.wire, "images", True) and IMAGE_REMOVING_QUIRKS.isdisjoint(names)

    def apply_quirks(self, request: Request) -> tuple[Request, Losses]:
        """Return the request in the form that this server accepts, and the losses. The path of a loss is a path in the
        quirk's input."""
        losses = Losses()
        for quirk in self.quirks:
            request = quirk.apply(request, losses)
        if self.foreign_reasoning == "text":
            accepts_unsealed = SERVER_DIALECTS[self.dialect].accepts_unsealed_reasoning
            request = foreign_reasoning_as_text(
                request, losses, self.wire.maker, self.dialect, accepts_unsealed=accepts_unsealed
            )
        return request, losses


class ProfileFile(Struct, frozen=True, kw_only=True):
    """The settings of a profile file."""

    about: str
    dialect: ServerDialectName | UnsetType = UNSET
    extends: str | UnsetType = UNSET
    quirks: list[Any] = field(default_factory=list)
    wire: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key_header: str | UnsetType = UNSET
    pass_headers: list[str] | UnsetType = UNSET
    foreign_reasoning: ForeignReasoning | UnsetType = UNSET


def parse_profile(text: str, name: str, *, file: str = "", find_parent: FindParent | None = None) -> Profile:
    """Parse the profile in `text`. Errors name `file`; `find_parent` finds the profile that it extends."""
    source = TomlSource(file or name, text, ProfileError)
    profile_file = source.convert(source.toml, ProfileFile)
    base = _base_profile(source, profile_file, find_parent)
    wire = _merge_wire(source, profile_file.wire, base.wire)
    return Profile(
        name=name,
        dialect=base.dialect,
        about=profile_file.about,
        quirks=_merge_quirks(source, profile_file.quirks, base.quirks),
        wire=wire,
        own_client_wire=replace(wire, **SERVER_DIALECTS[base.dialect].own_client_wire),
        headers=base.headers | _check_headers(source, profile_file.headers),
        key_header=profile_file.key_header or base.key_header,
        pass_headers=base.pass_headers if profile_file.pass_headers is UNSET else tuple(profile_file.pass_headers),
        foreign_reasoning=profile_file.foreign_reasoning or base.foreign_reasoning,
    )


def _base_profile(source: TomlSource, profile_file: ProfileFile, find_parent: FindParent | None) -> Profile:
    """Return the profile that this one extends, or the defaults of its dialect."""
    if profile_file.extends is UNSET:
        if profile_file.dialect is UNSET:
            raise ProfileError(
                f"{source.file}: expected dialect ({', '.join(SERVER_DIALECTS)}) or extends, got neither"
            )
        wire = SERVER_DIALECTS[profile_file.dialect].wire_type()
        return Profile(name="", dialect=profile_file.dialect, about="", quirks=(), wire=wire, own_client_wire=wire)
    try:
        if find_parent is None:
            raise ProfileError("no other profile is available here")
        base = find_parent(profile_file.extends)
    except ProfileError as error:
        raise source.error_at(("extends",), f"extends {profile_file.extends!r}: {error}") from None
    if profile_file.dialect not in (UNSET, base.dialect):
        problem = (
            f"dialect: expected {base.dialect!r}, the dialect of {profile_file.extends!r}, got {profile_file.dialect!r}"
        )
        raise source.error_at(("dialect",), problem)
    return base


def _merge_quirks(source: TomlSource, entries: list[Any], inherited: tuple[Quirk, ...]) -> tuple[Quirk, ...]:
    """Return the inherited quirks, then these; `-name` removes one."""
    quirks = list(inherited)
    for index, entry in enumerate(entries):
        path = ("quirks", index)
        match entry:
            case str() if entry.startswith("-"):
                remaining = [quirk for quirk in quirks if quirk.name != entry[1:]]
                if len(remaining) == len(quirks):
                    hint = suggest_names(entry[1:], {quirk.name for quirk in quirks})
                    raise source.error_at(path, f"quirks: {entry!r} removes a quirk that is not inherited{hint}")
                quirks = remaining
            case str():
                quirks.append(_parse_quirk(source, entry, {}, path))
            case {"name": str() as name}:
                options = {option: value for option, value in entry.items() if option != "name"}
                quirks.append(_parse_quirk(source, name, options, path))
            case _:
                expectation = "a name, or a table with a name and options"
                raise source.error_at(path, f"quirks: expected {expectation}, got {as_toml(entry)}")
    return tuple(quirks)


def _parse_quirk(source: TomlSource, name: str, options: dict[str, Any], path: SettingPath) -> Quirk:
    if name not in QUIRKS:
        raise source.error_at(path, f"quirks: unknown quirk {name!r}{suggest_names(name, QUIRKS)}")
    return Quirk(name, source.convert(options, QUIRKS[name].options, path, f"quirk {name}: "))


def _check_headers(source: TomlSource, headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            expectation = "a lowercase name and a value on one line"
            raise source.error_at(
                ("headers", name), f"headers: expected {expectation}, got {as_toml(name)} = {as_toml(value)}"
            )
    return headers


def _merge_wire(source: TomlSource, values: dict[str, Any], base: Wire) -> Wire:
    parsed_options = source.convert(values, type(base), ("wire",), "wire.")
    return replace(base, **{name: getattr(parsed_options, name) for name in values})


IMAGE_REMOVING_QUIRKS: Final = frozenset({"images_as_notes", "media_as_notes"})
HEADER_NAME: Final = re.compile("[a-z0-9-]+")
HEADER_VALUE: Final = re.compile("[!-~]([ -~]*[!-~])?")
