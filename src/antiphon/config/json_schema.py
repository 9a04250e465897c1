"""The JSON Schema of the configuration file, generated from the types that load it, for editors and other tools."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.config.schema import Config

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Returns the schema. TOML has no null, so a setting that may be absent has no null in its schema."""
    schema = _without_null(msgspec.json.schema(Config))
    return {"$schema": DIALECT, "title": "antiphon.toml", **schema}


def _without_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_null(element) for element in value if element != {"type": "null"}]
    if not isinstance(value, dict):
        return value
    members = {name: _without_null(member) for name, member in value.items() if not _is_null_default(name, member)}
    alternatives = members.get("anyOf")
    if isinstance(alternatives, list) and len(alternatives) == 1:
        del members["anyOf"]
        members |= alternatives[0]
    return members


def _is_null_default(name: str, member: Any) -> bool:
    """Whether a member is a default that TOML cannot write: null, or a table with such values."""
    return name == "default" and (member is None or (isinstance(member, dict) and None in member.values()))
