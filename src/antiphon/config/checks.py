"""Checks settings beyond their types: addresses, names, keys, profiles, and relations between settings.

`find_problems` yields every problem with the path of its setting. `check_config` raises all of them, for a `Config`
that comes from no file or was changed. Values that may be keys are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from antiphon.config.model_rules import ModelRule
from antiphon.config.problem import Problem
from antiphon.config.routing_checks import routing_problems
from antiphon.config.schema import (
    AGENT_DIALECT,
    EMBEDDED_DIALECT,
    CompactionConfig,
    Config,
    KeyConfig,
    ServerConfig,
    UpstreamConfig,
    parse_sealing_key,
)
from antiphon.config.store_url import store_url_problem
from antiphon.dialects.common.model_names import WILDCARD
from antiphon.errors import ConfigError, ProfileError
from antiphon.profiles import load_profile
from antiphon.profiles.loading import is_profile_path, profile_names
from antiphon.profiles.toml_source import as_toml
from antiphon.protocol.suggestions import suggest_names


def check_config(config: Config, environ: Mapping[str, str]) -> None:
    """Raises all problems of a configuration, one in each line."""
    problems = list(map(str, find_problems(config, environ)))
    if problems:
        raise ConfigError("\n".join(problems))


def find_problems(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yields all problems of a configuration."""
    yield from find_table_problems(config, environ)
    if not config.keys and not is_loopback(config.server.host):
        yield Problem(("server", "host"), PUBLIC_HOST_WITHOUT_KEYS.format(host=as_toml(config.server.host)))
    yield from _missing_key_problems(config, environ)
    yield from routing_problems(config)
    yield from _default_model_problems(config)
    yield from _duplicate_key_problems(config, environ)


def find_table_problems(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yields the problems that each table has, whatever the others contain; and names that occur twice."""
    yield from _server_problems(config.server)
    for index, upstream in enumerate(config.upstreams):
        for path, message in _upstream_problems(upstream, environ):
            yield Problem(("upstreams", index, *path), message)
    yield from _duplicate_name_problems(config)
    for index, key in enumerate(config.keys):
        for path, message in _key_problems(key, environ):
            yield Problem(("keys", index, *path), message)
        if key.env is not None and (message := _short_key_problem(config.server, key.env, environ)):
            yield Problem(("keys", index, "env"), message)
    yield from _metrics_key_problems(config.server, environ)
    yield from _sealing_problems(config.compaction, environ)
    if message := store_url_problem(config.store.url):
        yield Problem(("store", "url"), message)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Names other than localhost may resolve to any address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def min_key_length(host: str) -> int:
    """The length of the shortest key that is accepted on an address."""
    return 1 if is_loopback(host) else MIN_PUBLIC_KEY_LENGTH


def _server_problems(server: ServerConfig) -> Iterator[Problem]:
    if not _is_host(server.host):
        yield Problem(
            ("server", "host"),
            f'expected an address or a host name without a port, such as "127.0.0.1", got {as_toml(server.host)}',
        )
    for index, host in enumerate(server.allowed_hosts):
        if host != "*" and not _is_host(host):
            expectation = (
                'expected an address or a host name without a port, such as "gateway.example.com", or "*" for any host'
            )
            yield Problem(("server", "allowed_hosts", index), f"{expectation}, got {as_toml(host)}")
    for index, origin in enumerate(server.allowed_origins):
        if not ORIGIN_FORM.fullmatch(origin):
            expectation = 'expected scheme, host and an optional port, such as "https://app.example.com"'
            yield Problem(("server", "allowed_origins", index), f"{expectation}, got {as_toml(origin)}")


def _default_model_problems(config: Config) -> Iterator[Problem]:
    model = config.server.default_model
    if model is None or (model and config.serves(model)):
        return
    names = [as_toml(name) for name in config.model_names()]
    yield Problem(
        ("server", "default_model"),
        f"expected a model that an upstream serves, such as {', '.join(names[:5])}, got {as_toml(model)}",
    )


def _upstream_problems(upstream: UpstreamConfig, environ: Mapping[str, str]) -> Iterator[Problem]:
    if not _is_label(upstream.name):
        yield Problem(("name",), f"expected a name of 1 to 100 printable characters, got {as_toml(upstream.name)}")
    if upstream.embedded:
        yield from _embedded_problems(upstream)
    elif upstream.agent is not None:
        yield from _agent_problems(upstream, upstream.agent)
    elif message := _url_problem(upstream.base_url):
        yield Problem(("base_url",), message)
    yield from _key_variable_problems(upstream, environ)
    yield from _models_problems(upstream)
    yield from _profile_problems(upstream)


def _key_variable_problems(upstream: UpstreamConfig, environ: Mapping[str, str]) -> Iterator[Problem]:
    variables = upstream.key_variables()
    if upstream.api_key_env == []:
        yield Problem(
            ("api_key_env",), "empty: expected at least one variable, or no api_key_env for a server without keys"
        )
    for index, variable in enumerate(variables):
        path = ("api_key_env",) if isinstance(upstream.api_key_env, str) else ("api_key_env", index)
        if _is_variable_name(variable) and not environ.get(variable):
            continue  # a warning, unless no upstream has a key
        message = _variable_problem(variable, f"the key of upstream {upstream.name!r}", environ)
        if not message and environ[variable] in [environ.get(earlier) for earlier in variables[:index]]:
            message = f"{variable} holds the same key as an earlier variable: expected each key once"
        if message:
            yield Problem(path, message)


def _missing_key_problems(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Unset key variables, if they leave no upstream to use. Otherwise they are warnings."""
    if not all(upstream.lacks_key(environ) for upstream in config.upstreams):
        return
    for index, upstream in enumerate(config.upstreams):
        for variable in upstream.key_variables():
            if _is_variable_name(variable):
                message = _variable_problem(variable, f"the key of upstream {upstream.name!r}", environ)
                yield Problem(("upstreams", index, "api_key_env"), message)


def _embedded_problems(upstream: UpstreamConfig) -> Iterator[Problem]:
    if upstream.base_url:
        yield Problem(
            ("base_url",),
            "not allowed for the embedded model, which has no address: remove base_url or embedded = true",
        )
    if upstream.api_key_env is not None:
        yield Problem(("api_key_env",), "not allowed for the embedded model, which needs no key: remove api_key_env")
    if upstream.dialect != EMBEDDED_DIALECT:
        yield Problem(
            ("dialect",),
            f"expected {as_toml(EMBEDDED_DIALECT)}, the dialect of the embedded model, got {as_toml(upstream.dialect)}",
        )


def _agent_problems(upstream: UpstreamConfig, agent: str) -> Iterator[Problem]:
    if not AGENT_NAME.fullmatch(agent):
        yield Problem(
            ("agent",),
            f'expected a module and the name of an agent in it, such as "my_agents:run", got {as_toml(agent)}',
        )
    if upstream.base_url:
        yield Problem(("base_url",), "not allowed for an agent, which has no address: remove base_url or agent")
    if upstream.api_key_env is not None:
        yield Problem(("api_key_env",), "not allowed for an agent, which needs no key: remove api_key_env")
    if upstream.dialect != AGENT_DIALECT:
        yield Problem(
            ("dialect",), f"expected {as_toml(AGENT_DIALECT)}, the dialect of agents, got {as_toml(upstream.dialect)}"
        )


def _url_problem(url: str) -> str:
    """The problem of a URL; empty if there is none. The URL is not shown, since it may contain a key."""
    if not url:
        return f"missing: expected {URL_EXPECTATION}, or embedded = true for the embedded model"
    # The parser silently drops blanks and line breaks, so check for them first.
    if not VISIBLE_ASCII.fullmatch(url):
        return f"contains spaces or characters outside ASCII: expected {URL_EXPECTATION}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"not a valid URL ({error}): expected {URL_EXPECTATION}"
    if parts.scheme not in ("http", "https") or not host:
        return f"not the URL of a server: expected {URL_EXPECTATION}"
    if "@" in parts.netloc:
        return "contains a user name or a key: remove it, and name the variable that holds the key in api_key_env"
    if "?" in url or "#" in url:
        return f"contains a query or a fragment: expected {URL_EXPECTATION}"
    return ""


def _models_problems(upstream: UpstreamConfig) -> Iterator[Problem]:
    if not upstream.models:
        yield Problem(("models",), 'empty: expected at least one name or pattern; ["*"] serves every model')
    for index, rule in enumerate(upstream.models):
        message = (
            _rule_problem(rule)
            if isinstance(rule, ModelRule)
            else ""
            if rule
            else "empty: expected a name or a pattern"
        )
        if message:
            yield Problem(("models", index), message)


def _rule_problem(rule: ModelRule) -> str:
    if not rule.from_ or not rule.to:
        return "empty name: expected the name that clients use in from, and the upstream's own name in to"
    if rule.to.count(WILDCARD) > 1 or (WILDCARD in rule.to and rule.from_.count(WILDCARD) != 1):
        return (
            f"the * in to = {as_toml(rule.to)} matches no single * in from = {as_toml(rule.from_)}: "
            "expected exactly one * in each"
        )
    return ""


def _profile_problems(upstream: UpstreamConfig) -> Iterator[Problem]:
    name = upstream.profile_name
    if not is_profile_path(name) and name not in profile_names():
        candidates = [candidate for candidate in profile_names() if load_profile(candidate).dialect == upstream.dialect]
        yield Problem(("profile",), f"unknown profile {name!r}{suggest_names(name, candidates)}")
        return
    try:
        profile = load_profile(name)
    except ProfileError as error:
        yield Problem(("profile",), str(error))
        return
    if profile.dialect != upstream.dialect:
        message = (
            f"{upstream.profile_name!r} is for servers of dialect {profile.dialect!r}; expected a profile of "
            f"dialect {upstream.dialect!r}"
        )
        yield Problem(("profile",), message)


def _duplicate_name_problems(config: Config) -> Iterator[Problem]:
    seen_names: set[str] = set()
    for index, upstream in enumerate(config.upstreams):
        if upstream.name in seen_names:
            yield Problem(
                ("upstreams", index, "name"), f"duplicate name {upstream.name!r}: each upstream needs a different name"
            )
        seen_names.add(upstream.name)
    owners: dict[bool | str, str] = {}
    for index, upstream in enumerate(config.upstreams):
        first_name = owners.setdefault(upstream.embedded, upstream.name) if upstream.embedded else upstream.name
        if first_name != upstream.name:
            yield Problem(
                ("upstreams", index, "embedded"),
                f"only one upstream can be the embedded model, and {first_name!r} already is",
            )


def _key_problems(key: KeyConfig, environ: Mapping[str, str]) -> Iterator[Problem]:
    if not _is_label(key.name):
        yield Problem(("name",), f"expected a name of 1 to 100 printable characters, got {as_toml(key.name)}")
    match key.sha256, key.env:
        case (None, None):
            yield Problem(
                (), f"the key {key.name!r} has neither sha256 nor env: expected one of them. {HASH_COMMAND_HINT}"
            )
        case (str() as digest, None):
            if not HEX_DIGEST.fullmatch(digest):
                yield Problem(
                    ("sha256",),
                    f"expected the SHA-256 of the key as 64 hex digits, not the key itself. {HASH_COMMAND_HINT}",
                )
            elif bytes.fromhex(digest) == sha256(b"").digest():
                yield Problem(
                    ("sha256",),
                    "this is the hash of the empty string: the variable was empty when the hash was made. "
                    f"{HASH_COMMAND_HINT}",
                )
        case (None, str() as variable):
            message = _variable_problem(variable, f"the key of {key.name!r}", environ)
            if message:
                yield Problem(("env",), message)
        case _:
            yield Problem(("env",), f"the key {key.name!r} has both sha256 and env: expected one of them")


def _metrics_key_problems(server: ServerConfig, environ: Mapping[str, str]) -> Iterator[Problem]:
    variable = server.metrics_key_env
    if variable is None:
        return
    message = _variable_problem(variable, "the key of /metrics", environ)
    if message or (message := _short_key_problem(server, variable, environ)):
        yield Problem(("server", "metrics_key_env"), message)


def _short_key_problem(server: ServerConfig, variable: str, environ: Mapping[str, str]) -> str:
    """The problem of a key that is too short for a public address; empty if there is none."""
    size = len(environ.get(variable, ""))
    if not size or size >= min_key_length(server.host):
        return ""
    return (
        f"the key in the environment variable {variable} has {size} characters, and other machines can reach "
        f"{as_toml(server.host)}: expected at least {MIN_PUBLIC_KEY_LENGTH}. {KEY_COMMAND_HINT}"
    )


def _duplicate_key_problems(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    owners_by_hash: dict[bytes, str] = {}
    for index, key in enumerate(config.keys):
        if any(_key_problems(key, environ)):
            continue
        digest = key.hash(environ)
        if digest in owners_by_hash:
            yield Problem(
                ("keys", index),
                f"{key.name!r} has the same key as {owners_by_hash[digest]!r}: each owner needs a different key",
            )
        owners_by_hash.setdefault(digest, key.name)


def _sealing_problems(compaction: CompactionConfig, environ: Mapping[str, str]) -> Iterator[Problem]:
    variables_by_key: dict[bytes, str] = {}
    for index, variable in enumerate(compaction.keys_env):
        path = ("compaction", "keys_env", index)
        message = _variable_problem(variable, "a key that seals compactions", environ)
        if message:
            yield Problem(path, message)
            continue
        try:
            key = parse_sealing_key(environ[variable])
        except ConfigError:
            yield Problem(
                path, f"expected 32 bytes in hex or base64 in the environment variable {variable}. {KEY_COMMAND_HINT}"
            )
            continue
        if key in variables_by_key:
            yield Problem(path, f"{variable} holds the same key as {variables_by_key[key]}: expected each key once")
        variables_by_key.setdefault(key, variable)


def _is_variable_name(variable: str) -> bool:
    """Whether this is the name of a variable, and not a key. Long names in lower case are keys."""
    return bool(VARIABLE_NAME.fullmatch(variable)) and (len(variable) < 20 or variable.upper() == variable)


def _variable_problem(variable: str, content: str, environ: Mapping[str, str]) -> str:
    """The problem of an environment variable that holds a key; empty if there is none. The value is never shown."""
    if not _is_variable_name(variable):
        return (
            f"not the name of an environment variable: store {content} in a variable and give its name here, not "
            "the key itself"
        )
    value = environ.get(variable)
    if not value:
        return f"the environment variable {variable} is not set: it must hold {content}"
    if not VISIBLE_ASCII.fullmatch(value):
        return (
            f"the environment variable {variable} contains spaces or characters outside ASCII: it must hold {content}"
        )
    return ""


def _is_label(name: str) -> bool:
    return 0 < len(name) <= 100 and name.isprintable() and name == name.strip()


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return HOST_NAME.fullmatch(host) is not None
    return True


MIN_PUBLIC_KEY_LENGTH: Final = 16  # characters; a shorter key can be guessed
HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?"
)
ORIGIN_FORM: Final = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
AGENT_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEX_DIGEST: Final = re.compile(r"[0-9A-Fa-f]{64}")
URL_EXPECTATION: Final = 'the URL of a server, such as "http://127.0.0.1:9001/v1"'
HASH_COMMAND_HINT: Final = 'To create one: printf %s "$KEY" | sha256sum'
KEY_COMMAND_HINT: Final = "To create one: openssl rand -hex 32"
PUBLIC_HOST_WITHOUT_KEYS: Final = (
    "other machines can reach {host}, and no keys are configured, so anybody could use the gateway. Listen "
    'on "127.0.0.1", or add a key: [[keys]] with name = "you" and sha256 = "…", the output of: printf %s '
    '"$KEY" | sha256sum'
)
