"""The five switches and their defaults, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ConfigError
from antiphon.producer import OpenResponsesConfig, load_settings

pytestmark = pytest.mark.without_coverage


def test_default_settings_are_disabled_with_all_outputs(tmp_path: Path) -> None:
    """B-8: the defaults of the document's table."""
    file = tmp_path / "agent.toml"
    file.write_text("")
    assert load_settings(file) == OpenResponsesConfig(
        enabled=False, emit_events=True, include_extensions=True, map_tool_calls=True, include_reasoning=True
    )


def test_settings_are_read_from_their_table_only(tmp_path: Path) -> None:
    """B-8."""
    file = tmp_path / "agent.toml"
    file.write_text('[agent]\nprovider = "x"\n[agent.open_responses]\nenabled = true\ninclude_reasoning = false\n')
    assert load_settings(file) == OpenResponsesConfig(enabled=True, include_reasoning=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[agent.open_responses]\nenabeld = true\n", "agent.toml, line 2: .*open_responses.enabeld.*enabled"),
        (
            "[agent.open_responses]\nenabled = 1\n",
            "agent.toml, line 2: agent.open_responses.enabled: expected true or false, got 1",
        ),
        ("[agent]\nopen_responses = 1\n", "expected a table of switches"),
        ("agent = 1\n[x", "agent.toml"),
    ],
)
def test_invalid_setting_is_refused_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings(file)


def test_missing_settings_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file"):
        load_settings(tmp_path / "none.toml")


def test_settings_default_if_agent_is_no_table(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("agent = 1\n")
    assert load_settings(file) == OpenResponsesConfig()
