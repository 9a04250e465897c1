"""`config/warnings`: valid settings that are probably not meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.sources import REPO

from antiphon.config import Config, ModelConfig, TargetConfig, UpstreamConfig, find_warnings, parse_config
from antiphon.config.model_rules import ModelRule

KEYS = {"OPENAI_API_KEY": "k-1", "LAB_KEY": "k-2"}


def upstream(name: str, *models: str | ModelRule, key: str | list[str] | None = None) -> UpstreamConfig:
    return UpstreamConfig(
        name=name, dialect="chat", base_url="http://127.0.0.1:1/v1", models=list(models), api_key_env=key
    )


def warnings_of(*upstreams: UpstreamConfig, models: list[ModelConfig] | None = None) -> list[str]:
    config = Config(upstreams=list(upstreams), models=models or [])
    return list(map(str, find_warnings(config, KEYS)))


def test_blocks_of_the_servers_page_in_one_file_shadow_each_other() -> None:
    """The first serves every model."""
    page = (REPO / "docs/servers.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL) if "[[upstreams]]" in block]
    assert len(blocks) == 3
    config = parse_config("\n".join(blocks), Path("antiphon.toml"), KEYS)
    shadowed = [str(warning) for warning in find_warnings(config, KEYS)]
    assert len(shadowed) == 3
    assert shadowed[0] == (
        'upstreams[1].models: "gpt-*" of the upstream "openai" is shadowed: the earlier upstream "ollama" serves "*"; '
        "give that one narrower models, or put it last"
    )


@pytest.mark.parametrize(
    ("first", "second", "is_shadowed"),
    [
        ("*", "gpt-*", True),
        ("gpt-*", "gpt-5*", True),
        ("gpt-*", "gpt-5", True),
        ("gpt-*", "gpt-*", True),
        ("gpt-5*", "gpt-*", False),
        ("gpt-*", "*", False),
        ("gpt-5", "gpt-5", False),
        ("gpt-5", "gpt-*", False),
    ],
)
def test_pattern_shadows_what_it_covers(first: str, second: str, is_shadowed: bool) -> None:
    """Two upstreams that list the same name are meant as targets of one model."""
    assert bool(warnings_of(upstream("a", first), upstream("b", second))) == is_shadowed


def test_upstream_that_a_model_names_is_not_shadowed() -> None:
    models = [ModelConfig(name="m", targets=[TargetConfig(upstream="b", model="x")])]
    assert warnings_of(upstream("a", "*"), upstream("b", "x"), models=models) == []
    special = [TargetConfig(upstream="b", model="x")]
    entry = ModelConfig(name="m", targets=[TargetConfig(upstream="a", model="x")], on_context_length=special)
    assert warnings_of(upstream("a", "*"), upstream("b", "x"), models=[entry]) == []


def test_name_that_an_entry_of_other_targets_hides_is_a_warning() -> None:
    entry = ModelConfig(name="x", targets=[TargetConfig(upstream="b", model="y")])
    assert warnings_of(upstream("a", "x"), upstream("b", "x"), models=[entry]) == [
        'upstreams[0].models: "x" of the upstream "a" is hidden: the entry of that name in [[models]] has other targets; '
        "add the upstream there, or remove the name here"
    ]


def test_listed_name_behind_a_pattern_is_asked_second() -> None:
    assert warnings_of(upstream("a", "gpt-*"), upstream("b", "gpt-5")) == [
        'upstreams[1].models: "gpt-5" of the upstream "b" is shadowed, and asked there only if another fails: the earlier upstream '
        '"a" serves "gpt-*"; give that one narrower models, or put it last'
    ]


def test_unset_key_is_a_warning_with_its_effect() -> None:
    assert warnings_of(upstream("a", "x", key="GONE"), upstream("b", "y", key=["LAB_KEY", "GONE"])) == [
        'upstreams[0].api_key_env: the environment variable GONE is not set: the upstream "a" is not used',
        "upstreams[1].api_key_env: the environment variable GONE is not set: "
        'the upstream "b" is used with its other keys',
    ]
