"""Loads the configuration from a file, or from the environment alone.

Paths in a file are relative to its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from antiphon.config.checks import check_config, find_problems
from antiphon.config.model_rules import ModelRule
from antiphon.config.schema import Config, Timeouts, UpstreamConfig
from antiphon.errors import ConfigError
from antiphon.profiles.loading import PROFILE_SUFFIX, is_profile_path
from antiphon.profiles.providers import Provider, builtin_providers
from antiphon.profiles.toml_source import TomlSource

FILE = "antiphon.toml"
VARIABLE = "ANTIPHON_CONFIG"
SQLITE = "sqlite:///"
PROFILES = "profiles"


def find_config(given: Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The configuration file: the given one, the one in `$ANTIPHON_CONFIG`, `antiphon.toml` in `cwd`, or None."""
    named = given or environ.get(VARIABLE)
    if named:
        return cwd / named
    return cwd / FILE if (cwd / FILE).is_file() else None


def load_config(path: Path, environ: Mapping[str, str]) -> Config:
    """Reads a configuration file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid UTF-8") from None
    return parse_config(text, path, environ)


def parse_config(text: str, file: str | Path, environ: Mapping[str, str]) -> Config:
    """Parses the content of `file`. Without upstreams in it, the default ones are used."""
    source = TomlSource(str(file), text, ConfigError)
    _refuse_removed_settings(source)
    written = source.convert(source.toml, Config)
    folder = Path(file).parent
    upstreams = [
        _settled(upstream, folder, written.timeouts, table.get("timeouts", {}))
        for upstream, table in zip(written.upstreams, source.toml.get("upstreams", []), strict=True)
    ]
    trace = replace(written.trace, dir=str(folder / written.trace.dir)) if written.trace.dir else written.trace
    store = replace(written.store, url=_store_url(written.store.url, folder))
    config = replace(written, upstreams=upstreams or _usual_upstreams(environ), trace=trace, store=store)
    for problem in find_problems(config, environ):
        raise source.error_at(problem.steps, str(problem))
    return config


def _refuse_removed_settings(source: TomlSource) -> None:
    for (table, name), message in REMOVED.items():
        settings = source.toml.get(table)
        if isinstance(settings, dict) and name in settings:
            raise source.error_at((table, name), f"{table}.{name} {message}")


def default_config(environ: Mapping[str, str]) -> Config:
    """The configuration without a file: the embedded model, and every provider whose key variable is set."""
    config = Config(upstreams=_usual_upstreams(environ))
    check_config(config, environ)
    return config


def _settled(upstream: UpstreamConfig, folder: Path, timeouts: Timeouts, own_timeouts: Iterable[str]) -> UpstreamConfig:
    """The upstream with its profile path resolved, no trailing slash in its URL, and either all timeouts or none."""
    profile = _seen_from(folder, upstream.profile) if upstream.profile else None
    own = {name: getattr(upstream.timeouts, name) for name in own_timeouts}
    return replace(
        upstream,
        profile=profile,
        base_url=upstream.base_url.rstrip("/"),
        timeouts=replace(timeouts, **own) if own else None,
    )


def _seen_from(folder: Path, profile: str) -> str:
    """Resolves a profile path or name. Profiles in `profiles` beside the configuration take precedence over built-in
    ones."""
    if is_profile_path(profile):
        return str((folder / profile).absolute())
    own = folder / PROFILES / f"{profile}{PROFILE_SUFFIX}"
    return str(own.absolute()) if own.is_file() else profile


def _store_url(url: str | None, folder: Path) -> str | None:
    if url is None or not url.startswith(SQLITE) or url[len(SQLITE) :][:1] in ("", "/"):
        return url
    return f"{SQLITE}{quote(str(folder.absolute()))}/{url.removeprefix(SQLITE)}"


def _usual_upstreams(environ: Mapping[str, str]) -> list[UpstreamConfig]:
    return [EMBEDDED, *(_upstream(provider) for provider in builtin_providers() if environ.get(provider.api_key_env))]


def _upstream(provider: Provider) -> UpstreamConfig:
    """A provider as an upstream. `name/model` always selects this provider."""
    return UpstreamConfig(
        name=provider.name,
        dialect=provider.dialect,
        base_url=provider.base_url,
        api_key_env=provider.api_key_env,
        models=[ModelRule(from_=f"{provider.name}/*", to="*"), *provider.models],
        profile=provider.profile,
    )


#: Removed settings, and what to do about them.
REMOVED: Final[dict[tuple[str, str], str]] = {
    ("server", "recall_mib"): "was removed in 0.1: conversations are no longer cached; delete the line",
}
EMBEDDED = UpstreamConfig(name="local", dialect="chat", models=["local"], profile="local", embedded=True)
