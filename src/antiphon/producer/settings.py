"""The five switches of an agent's Open Responses layer, from code or from `[agent.open_responses]` in a TOML file
(B-8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.dialects.agent_log.wire import ThreadWire
from antiphon.errors import ConfigError
from antiphon.profiles.toml_source import TomlSource


class OpenResponsesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the layer. It is off by default."""

    #: Whether the layer is on.
    enabled: bool = False
    #: Whether events are emitted, besides the response at the end.
    emit_events: bool = True
    #: Whether the agent's own items and events are emitted, such as `vtcode:file_change`.
    include_extensions: bool = True
    #: Whether the agent's tool calls are emitted as `function_call` items.
    map_tool_calls: bool = True
    #: Whether reasoning is emitted.
    include_reasoning: bool = True

    def wire(self, slug: str) -> ThreadWire:
        """The settings of the translation."""
        return ThreadWire(
            slug=slug,
            include_extensions=self.include_extensions,
            map_tool_calls=self.map_tool_calls,
            include_reasoning=self.include_reasoning,
        )


def load_settings(toml: str | Path) -> OpenResponsesConfig:
    """Reads the table of a TOML text (`str`) or of a file (`Path`). An unknown setting is an error with its line
    number."""
    if isinstance(toml, str):
        source = TomlSource("the TOML text", toml, ConfigError)
    else:
        source = TomlSource(str(toml), _read_file(toml), ConfigError)
    agent: Any = source.toml.get("agent", {})
    table = agent.get("open_responses", {}) if isinstance(agent, dict) else {}
    if not isinstance(table, dict):
        raise source.error_at(("agent", "open_responses"), "agent.open_responses: expected a table of switches")
    return source.convert(table, OpenResponsesConfig, ("agent", "open_responses"), "agent.open_responses.")


def _read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot read the file ({error})") from None
