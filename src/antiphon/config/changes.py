"""Compares the configuration of a running gateway with a new one: what changes, and what only a restart can change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.config.schema import Config

#: Settings that are read at the start: their table → their names; without names, the whole table.
RESTART_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "server": ("host", "port", "workers", "body_workers", "log", "grace", "watch"),
    "trace": (),
    "store": (),
    "background": ("running",),
    "compaction": (),
    "telemetry": (),
}


def keep_restart_settings(current: Config, new: Config) -> tuple[Config, list[str]]:
    """The new configuration with the current values of the settings that only a restart can change, and the names of
    those that differ, such as `server.port`."""
    tables: dict[str, Any] = {}
    names: list[str] = []
    for table, settings in RESTART_SETTINGS.items():
        current_table, new_table = getattr(current, table), getattr(new, table)
        changed = [name for name in _changed_fields(current_table, new_table) if not settings or name in settings]
        names += [f"{table}.{name}" for name in changed]
        tables[table] = replace(new_table, **{name: getattr(current_table, name) for name in changed})
    return replace(new, **tables), names


def describe_changes(current: Config, new: Config) -> list[str]:
    """One line for each list or setting that changes, such as `upstreams: added b, removed a`."""
    lines: list[str] = []
    for table in current.__struct_fields__:
        current_value, new_value = getattr(current, table), getattr(new, table)
        if isinstance(current_value, list):
            lines += _list_changes(table, current_value, new_value)
        else:
            lines += [f"{table}.{name}: changed" for name in _changed_fields(current_value, new_value)]
    return lines


def _list_changes(table: str, current: list[Any], new: list[Any]) -> list[str]:
    current_entries, new_entries = _by_name(current), _by_name(new)
    changes = {
        "added": [name for name in new_entries if name not in current_entries],
        "removed": [name for name in current_entries if name not in new_entries],
        "changed": [name for name in new_entries if new_entries[name] != current_entries.get(name, new_entries[name])],
    }
    parts = [f"{change} {', '.join(names)}" for change, names in changes.items() if names]
    if not parts and current != new:
        parts = ["another order"]
    return [f"{table}: {', '.join(parts)}"] if parts else []


def _by_name(entries: Iterable[Any]) -> dict[str, list[Any]]:
    """The entries of each name: an owner may have several keys."""
    by_name: dict[str, list[Any]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    return by_name


def _changed_fields(current: Struct, new: Struct) -> list[str]:
    return [name for name in current.__struct_fields__ if getattr(current, name) != getattr(new, name)]
