"""Loads the configuration from a file, or from the environment alone.

Paths in a file are relative to its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from antiphon.config.checks import check_config, find_problems, find_table_problems
from antiphon.config.model_rules import ModelRule
from antiphon.config.problem import Problem
from antiphon.config.routing import ModelConfig, RetryConfig
from antiphon.config.routing_checks import routing_problems
from antiphon.config.schema import EMBEDDED_DIALECT, EMBEDDINGS, Config, Timeouts, UpstreamConfig
from antiphon.errors import ConfigError
from antiphon.profiles.loading import PROFILE_SUFFIX, is_profile_path
from antiphon.profiles.providers import Provider, builtin_providers
from antiphon.profiles.toml_source import TomlSource

DEFAULT_FILE_NAME = "antiphon.toml"
CONFIG_VARIABLE = "ANTIPHON_CONFIG"
SQLITE_PREFIX = "sqlite:///"
PROFILES_FOLDER = "profiles"


def find_config(explicit_path: Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The configuration file: `explicit_path`, the one in `$ANTIPHON_CONFIG`, `antiphon.toml` in `cwd`, or None."""
    chosen_path = explicit_path or environ.get(CONFIG_VARIABLE)
    if chosen_path:
        return cwd / chosen_path
    return cwd / DEFAULT_FILE_NAME if (cwd / DEFAULT_FILE_NAME).is_file() else None


def load_config(path: Path, environ: Mapping[str, str]) -> Config:
    """Reads a configuration file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid UTF-8") from None
    return parse_config(text, path, environ)


def locate_problem(path: Path, problem: Problem) -> str:
    """The problem with the file and the line of its setting."""
    source = TomlSource(str(path), path.read_text(encoding="utf-8-sig"), ConfigError)
    return str(source.error_at(problem.path, str(problem)))


def parse_config(text: str, file: str | Path, environ: Mapping[str, str]) -> Config:
    """Parses the content of `file`. Without upstreams in it, the default ones are used."""
    source = TomlSource(str(file), text, ConfigError)
    _refuse_removed_settings(source)
    try:
        settings = source.convert(source.toml, Config)
    except ConfigError as error:
        raise ConfigError("\n".join([str(error), *_other_problems(source, environ)])) from None
    folder = Path(file).parent
    upstreams = [
        _resolve_upstream(upstream, folder, settings.timeouts, table.get("timeouts", {}))
        for upstream, table in zip(settings.upstreams, source.toml.get("upstreams", []), strict=True)
    ]
    models = [
        _resolve_model(model, settings.retry, table.get("retry", {}))
        for model, table in zip(settings.models, source.toml.get("models", []), strict=True)
    ]
    trace = replace(settings.trace, dir=str(folder / settings.trace.dir)) if settings.trace.dir else settings.trace
    store = replace(settings.store, url=_resolve_store_url(settings.store.url, folder))
    upstreams = upstreams or _default_upstreams(environ)
    config = replace(settings, upstreams=upstreams, models=models, trace=trace, store=store)
    problems = [str(source.error_at(problem.path, str(problem))) for problem in find_problems(config, environ)]
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _other_problems(source: TomlSource, environ: Mapping[str, str]) -> list[str]:
    """The problems of the valid settings beside invalid ones, so that one look shows all. Of the relations between
    tables, only targets are checked before all are valid."""
    settings, placeholders = source.valid_part(Config)
    folder = Path(source.file).parent
    upstreams = [_resolve_upstream(upstream, folder, settings.timeouts, ()) for upstream in settings.upstreams]
    config = replace(settings, upstreams=upstreams)
    problems = list(find_table_problems(config, environ))
    if upstreams and not any(("upstreams", index, "name") in placeholders for index in range(len(upstreams))):
        problems += routing_problems(config)
    return [
        str(source.error_at(problem.path, str(problem)))
        for problem in problems
        if problem.path not in placeholders
        and not (problem.path[-1] == "profile" and (*problem.path[:-1], "dialect") in placeholders)
    ]


def _refuse_removed_settings(source: TomlSource) -> None:
    for (table, name), message in REMOVED_SETTINGS.items():
        table_settings = source.toml.get(table)
        if isinstance(table_settings, dict) and name in table_settings:
            raise source.error_at((table, name), f"{table}.{name} {message}")


def default_config(environ: Mapping[str, str]) -> Config:
    """The configuration without a file: the embedded model, and every provider whose key variable is set."""
    config = Config(upstreams=_default_upstreams(environ))
    check_config(config, environ)
    return config


def _resolve_upstream(
    upstream: UpstreamConfig, folder: Path, timeouts: Timeouts, own_timeout_names: Iterable[str]
) -> UpstreamConfig:
    """The upstream with its profile path resolved, no trailing slash in its URL, and either all timeouts or none."""
    profile = _resolve_profile(folder, upstream.profile) if upstream.profile else None
    own_values = {name: getattr(upstream.timeouts, name) for name in own_timeout_names}
    return replace(
        upstream,
        profile=profile,
        base_url=upstream.base_url.rstrip("/"),
        timeouts=replace(timeouts, **own_values) if own_values else None,
    )


def _resolve_model(model: ModelConfig, retry: RetryConfig, own_retry_names: Iterable[str]) -> ModelConfig:
    """The model with either all retry settings or none."""
    own_values = {name: getattr(model.retry, name) for name in own_retry_names}
    return replace(model, retry=replace(retry, **own_values) if own_values else None)


def _resolve_profile(folder: Path, profile: str) -> str:
    """Resolves a profile path or name. Profiles in `profiles` beside the configuration take precedence over built-in
    ones."""
    if is_profile_path(profile):
        return str((folder / profile).absolute())
    own_profile = folder / PROFILES_FOLDER / f"{profile}{PROFILE_SUFFIX}"
    return str(own_profile.absolute()) if own_profile.is_file() else profile


def _resolve_store_url(url: str | None, folder: Path) -> str | None:
    if url is None or not url.startswith(SQLITE_PREFIX) or url[len(SQLITE_PREFIX) :][:1] in ("", "/"):
        return url
    return f"{SQLITE_PREFIX}{quote(str(folder.absolute()))}/{url.removeprefix(SQLITE_PREFIX)}"


def _default_upstreams(environ: Mapping[str, str]) -> list[UpstreamConfig]:
    return [
        EMBEDDED_UPSTREAM,
        *(_provider_upstream(provider) for provider in builtin_providers() if environ.get(provider.api_key_env)),
    ]


def _provider_upstream(provider: Provider) -> UpstreamConfig:
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
REMOVED_SETTINGS: Final[dict[tuple[str, str], str]] = {
    ("server", "recall_mib"): "was removed in 0.1: conversations are no longer cached; delete the line",
}
EMBEDDED_UPSTREAM = UpstreamConfig(
    name="local", dialect=EMBEDDED_DIALECT, models=["local"], profile="local", embedded=True
)
EMBEDDING_UPSTREAM = UpstreamConfig(
    name="local-embedding", dialect=EMBEDDED_DIALECT, models=["local-embedding"], embedded=EMBEDDINGS
)
