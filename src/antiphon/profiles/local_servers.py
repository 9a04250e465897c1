"""The built-in list of model servers that people run on their own machine, with their usual addresses."""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName
from antiphon.errors import ProfileError
from antiphon.profiles.toml_source import TomlSource


class LocalServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the data file. With `owner`, only a server whose models have this owner is of this kind."""

    name: str
    title: str
    base_url: str
    profile: str
    owner: str = ""
    dialect: ServerDialectName = "chat"


class _LocalServersFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: list[LocalServer]


def builtin_local_servers() -> list[LocalServer]:
    """Return all rows, in the order in which they are offered."""
    file = files("antiphon.profiles") / "data" / "local_servers.toml"
    source = TomlSource(file.name, file.read_text(encoding="utf-8"), ProfileError)
    return source.convert(source.toml, _LocalServersFile).servers
