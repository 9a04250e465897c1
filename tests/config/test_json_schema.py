"""The JSON Schema of the configuration: it accepts what the loader accepts, and refuses what the loader refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import fields

from antiphon.config import Config, parse_config
from antiphon.config.json_schema import config_schema
from antiphon.errors import ConfigError

UPSTREAM = '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
VALID = [
    "",
    UPSTREAM,
    UPSTREAM + 'models = ["a", { from = "b", to = "c" }]\ncontext = 4096\n',
    UPSTREAM + 'context = { "a" = 4096 }\napi_key_env = "LAB_KEY"\n',
    UPSTREAM + "[upstreams.timeouts]\nconnect = 1\n",
    "[server]\nport = 0\nworkers = 2\nlog = 'json'\n",
    "[store]\nurl = 'off'\nretention_days = 7\n",
]
INVALID = [
    "[server]\nport = 65536\n",
    "[server]\nport = '8080'\n",
    "[server]\nprot = 1\n",
    "[serve]\n",
    "[server]\nlog = 'xml'\n",
    "[[upstreams]]\nname = 'lab'\n",
    UPSTREAM + "models = [1]\n",
    UPSTREAM + "context = 1\n",
    UPSTREAM + "losses = 'ignore'\n",
    "upstreams = 1\n",
]


def _is_valid(text: str) -> bool:
    validator = jsonschema.Draft202012Validator(config_schema())
    return not list(validator.iter_errors(tomllib.loads(text)))


def _is_loaded(text: str) -> bool:
    try:
        parse_config(text, Path("antiphon.toml"), {"LAB_KEY": "sk-0123456789abcdef"})
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("text", VALID)
def test_schema_accepts_what_the_loader_accepts(text: str) -> None:
    assert _is_loaded(text)
    assert _is_valid(text)


@pytest.mark.parametrize("text", INVALID)
def test_schema_refuses_what_the_loader_refuses(text: str) -> None:
    assert not _is_loaded(text)
    assert not _is_valid(text)


def test_schema_is_a_schema_and_has_no_null() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert b"null" not in msgspec.json.encode(schema)


def test_schema_has_every_setting_with_its_description() -> None:
    definitions = config_schema()["$defs"]
    for shape in _shapes(Config):
        properties: dict[str, Any] = definitions[shape.__name__]["properties"]
        assert list(properties) == [member.encode_name for member in fields(shape)]
        if shape is not Config:
            assert all("description" in setting or "$ref" in setting for setting in properties.values()), shape


def _shapes(shape: type[Struct]) -> set[type[Struct]]:
    """A Struct and those in its members."""
    found: set[type[Struct]] = {shape}
    waiting = [member.type for member in fields(shape)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, Struct) and kind not in found:
            found.add(kind)
            waiting += [member.type for member in fields(kind)]
        waiting += list(getattr(kind, "__args__", ()))
    return found
