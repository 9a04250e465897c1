"""The built-in providers: a provider is usable once its usual key variable is set.

Each row of data has the provider's URL and the patterns of model names that only this provider serves.
"""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName
from antiphon.errors import ProfileError
from antiphon.profiles.toml_source import TomlSource


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the data file."""

    name: str
    dialect: ServerDialectName
    base_url: str
    #: The environment variable in which the provider's own tools expect the key.
    api_key_env: str
    #: Patterns of model names that only this provider serves.
    models: list[str] = []
    #: A model for messages that say how models are named.
    example: str = ""
    profile: str


class _ProvidersFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: list[Provider]


def builtin_providers() -> list[Provider]:
    """Return all built-in providers, in the order in which they are tried."""
    file = files("antiphon.profiles") / "data" / "providers.toml"
    source = TomlSource(file.name, file.read_text(encoding="utf-8"), ProfileError)
    return source.convert(source.toml, _ProvidersFile).providers
