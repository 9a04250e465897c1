"""The five switches and their defaults, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ConfigError
from antiphon.producer import OpenResponsesConfig, load_settings

pytestmark = pytest.mark.without_coverage


def test_without_a_word_the_layer_is_off_and_would_tell_everything(tmp_path: Path) -> None:
    """B-8: the defaults of the document's table."""
    file = tmp_path / "agent.toml"
    file.write_text("")
    assert load_settings(file) == OpenResponsesConfig(
        enabled=False, emit_events=True, include_extensions=True, map_tool_calls=True, include_reasoning=True
    )


def test_switches_are_read_from_their_table_and_nothing_else_of_the_file(tmp_path: Path) -> None:
    """B-8."""
    file = tmp_path / "agent.toml"
    file.write_text('[agent]\nprovider = "x"\n[agent.open_responses]\nenabled = true\ninclude_reasoning = false\n')
    assert load_settings(file) == OpenResponsesConfig(enabled=True, include_reasoning=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent.open_responses]\nenabeld = true\n", "agent.toml, line 2: .*open_responses.enabeld.*enabled"),
        ("[agent.open_responses]\nenabled = 1\n", "agent.toml, line 2: agent.open_responses.enabled: got 1"),
        ("[agent]\nopen_responses = 1\n", "wanted a table of switches"),
        ("agent = 1\n[x", "agent.toml"),
    ],
)
def test_what_cannot_be_meant_is_an_error_that_says_where(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_settings(file)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "none.toml")


def test_a_file_whose_agent_is_something_else_has_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("agent = 1\n")
    assert load_settings(file) == OpenResponsesConfig()
