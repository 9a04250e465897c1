"""The providers that are known by themselves: those whose usual key variable, once set, is all it takes to use them.

They are rows of data. A row says where a provider is and which names of models are plainly its own.
"""

from __future__ import annotations

from importlib.resources import files

from msgspec import Struct

from antiphon.errors import ProfileError
from antiphon.profiles.profile import Dialect
from antiphon.profiles.toml_source import TomlSource


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider, as it is written."""

    name: str
    dialect: Dialect
    base_url: str
    #: The variable in which its own tools look for the key.
    api_key_env: str
    #: Patterns of models that nobody else serves under such names.
    models: list[str] = []
    profile: str


class _ProvidersFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: list[Provider]


def builtin_providers() -> list[Provider]:
    """Every provider that is known by itself, in the order in which they are asked."""
    file = files("antiphon.profiles") / "data" / "providers.toml"
    source = TomlSource(file.name, file.read_text(encoding="utf-8"), ProfileError)
    return source.convert(source.toml, _ProvidersFile).providers
