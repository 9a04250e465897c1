"""The five switches of an agent's Open Responses layer, from code or from `[agent.open_responses]` in a TOML file (B-8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.dialects.common.thread_to_hub import ThreadWire
from antiphon.errors import ConfigError
from antiphon.profiles.toml_source import TomlSource


class OpenResponsesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the layer does. It is off until somebody switches it on."""

    #: Whether there is a layer at all.
    enabled: bool = False
    #: Whether events are told as they come, besides the response at the end.
    emit_events: bool = True
    #: Whether items and events of the agent's own kinds are told, such as `vtcode:file_change`.
    include_extensions: bool = True
    #: Whether the agent's tool calls are told as `function_call` items.
    map_tool_calls: bool = True
    #: Whether reasoning is told.
    include_reasoning: bool = True

    def wire(self, slug: str) -> ThreadWire:
        """What of it concerns the translation."""
        return ThreadWire(
            slug=slug,
            include_extensions=self.include_extensions,
            map_tool_calls=self.map_tool_calls,
            include_reasoning=self.include_reasoning,
        )


def load_settings(file: Path) -> OpenResponsesConfig:
    """The table of a file; what is not there has its default. An unknown switch is an error that names its line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error})") from None
    source = TomlSource(str(file), text, ConfigError)
    agent: Any = source.toml.get("agent", {})
    table = agent.get("open_responses", {}) if isinstance(agent, dict) else {}
    if not isinstance(table, dict):
        raise source.error_at(("agent", "open_responses"), "agent.open_responses: wanted a table of switches")
    return source.convert(table, OpenResponsesConfig, ("agent", "open_responses"), "agent.open_responses.")
