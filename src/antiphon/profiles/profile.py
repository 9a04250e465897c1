"""A profile: what differs between servers of one dialect, as data. Text in, a checked `Profile` out; no file is read here.

Every setting is checked when the profile is read: an unknown name or a bad value is an error that says in which file and line it
stands, what came, what was wanted, and which known name is closest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ProfileError
from antiphon.profiles.quirks import QUIRKS, Quirk
from antiphon.profiles.quirks.reasoning import foreign_reasoning_as_text
from antiphon.profiles.suggestions import suggestion_or_known_names
from antiphon.profiles.toml_source import SettingPath, TomlSource, as_toml
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

# Reasoning that another made, or nobody known: left out, or told as a text of the assistant's (RSN-3).
ForeignReasoning = Literal["drop", "text"]
Dialect = Literal["chat", "responses", "messages", "gemini"]
Wire = ChatWire | ResponsesWire | MessagesWire | GeminiWire
FindParent = Callable[[str], "Profile"]


class Profile(Struct, frozen=True, kw_only=True):
    """What one kind of server takes: quirks that reshape the request, wire options that the dialect reads, headers."""

    name: str
    dialect: Dialect
    about: str
    quirks: tuple[Quirk, ...]
    wire: Wire
    #: That it is sent with every request.
    headers: dict[str, str] = field(default_factory=dict)
    #: Where it looks for its key; any but `authorization` has the key alone.
    key_header: str = "authorization"
    #: Those of a client of the same dialect that it is sent as they came.
    pass_headers: tuple[str, ...] = ()
    foreign_reasoning: ForeignReasoning = "drop"

    def apply_quirks(self, request: Request) -> tuple[Request, Losses]:
        """The request as this server takes it, and what was lost. A loss has the path under which its quirk saw the thing."""
        losses = Losses()
        for quirk in self.quirks:
            request = quirk.apply(request, losses)
        if self.foreign_reasoning == "text":
            request = foreign_reasoning_as_text(
                request, losses, self.wire.maker, accepts_unsealed=self.dialect in ACCEPTS_UNSEALED_REASONING
            )
        return request, losses


class ProfileFile(Struct, frozen=True, kw_only=True):
    """A profile as it is written."""

    about: str
    dialect: Dialect | UnsetType = UNSET
    extends: str | UnsetType = UNSET
    quirks: list[Any] = field(default_factory=list)
    wire: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key_header: str | UnsetType = UNSET
    pass_headers: list[str] | UnsetType = UNSET
    foreign_reasoning: ForeignReasoning | UnsetType = UNSET


def parse_profile(text: str, name: str, *, file: str = "", find_parent: FindParent | None = None) -> Profile:
    """The profile in `text`; `file` is what errors call it, `find_parent` finds the profile it extends."""
    source = TomlSource(file or name, text, ProfileError)
    written = source.convert(source.toml, ProfileFile)
    base = _base(source, written, find_parent)
    return Profile(
        name=name,
        dialect=base.dialect,
        about=written.about,
        quirks=_quirks(source, written.quirks, base.quirks),
        wire=_wire(source, written.wire, base.wire),
        headers=base.headers | _headers(source, written.headers),
        key_header=written.key_header or base.key_header,
        pass_headers=base.pass_headers if written.pass_headers is UNSET else tuple(written.pass_headers),
        foreign_reasoning=written.foreign_reasoning or base.foreign_reasoning,
    )


def _base(source: TomlSource, written: ProfileFile, find_parent: FindParent | None) -> Profile:
    """What the profile builds on: the one it extends, or its dialect as it is."""
    if written.extends is UNSET:
        if written.dialect is UNSET:
            raise ProfileError(f"{source.file}: wanted a dialect ({', '.join(WIRE_TYPES)}) or a profile to extend, got neither")
        return Profile(name="", dialect=written.dialect, about="", quirks=(), wire=WIRE_TYPES[written.dialect]())
    try:
        if find_parent is None:
            raise ProfileError("there is no other profile to be found from here")
        base = find_parent(written.extends)
    except ProfileError as error:
        raise source.error_at(("extends",), f"extends {written.extends!r}: {error}") from None
    if written.dialect not in (UNSET, base.dialect):
        problem = f"dialect: got {written.dialect!r}, but {written.extends!r}, which it extends, has {base.dialect!r}"
        raise source.error_at(("dialect",), problem)
    return base


def _quirks(source: TomlSource, entries: list[Any], inherited: tuple[Quirk, ...]) -> tuple[Quirk, ...]:
    """The inherited quirks, then these; `-name` takes one out again."""
    quirks = list(inherited)
    for index, entry in enumerate(entries):
        at = ("quirks", index)
        match entry:
            case str() if entry.startswith("-"):
                kept = [quirk for quirk in quirks if quirk.name != entry[1:]]
                if len(kept) == len(quirks):
                    hint = suggestion_or_known_names(entry[1:], {quirk.name for quirk in quirks})
                    raise source.error_at(at, f"quirks: {entry!r} takes out what is not there{hint}")
                quirks = kept
            case str():
                quirks.append(_quirk(source, entry, {}, at))
            case {"name": str() as name}:
                options = {option: value for option, value in entry.items() if option != "name"}
                quirks.append(_quirk(source, name, options, at))
            case _:
                wanted = "a name, or a table with a name and options"
                raise source.error_at(at, f"quirks: got {as_toml(entry)}, wanted {wanted}")
    return tuple(quirks)


def _quirk(source: TomlSource, name: str, options: dict[str, Any], at: SettingPath) -> Quirk:
    if name not in QUIRKS:
        raise source.error_at(at, f"quirks: {name!r} is no known quirk{suggestion_or_known_names(name, QUIRKS)}")
    return Quirk(name, source.convert(options, QUIRKS[name].options, at, f"quirk {name}: "))


def _headers(source: TomlSource, headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER.fullmatch(name) or not VALUE.fullmatch(value):
            wanted = "a name in small letters and a value on one line"
            raise source.error_at(("headers", name), f"headers: got {as_toml(name)} = {as_toml(value)}, wanted {wanted}")
    return headers


def _wire(source: TomlSource, values: dict[str, Any], base: Wire) -> Wire:
    given = source.convert(values, type(base), ("wire",), "wire.")
    return replace(base, **{name: getattr(given, name) for name in values})


WIRE_TYPES: Final[dict[Dialect, type[Wire]]] = {
    "chat": ChatWire,
    "responses": ResponsesWire,
    "messages": MessagesWire,
    "gemini": GeminiWire,
}
# The others know reasoning by its signature alone.
ACCEPTS_UNSEALED_REASONING: Final[frozenset[Dialect]] = frozenset({"chat", "responses"})
HEADER: Final = re.compile("[a-z0-9-]+")
VALUE: Final = re.compile("[!-~]([ -~]*[!-~])?")
