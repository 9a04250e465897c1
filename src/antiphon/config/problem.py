"""A problem of a configuration: the path of its setting, and a message."""

from __future__ import annotations

from typing import NamedTuple

from antiphon.profiles.toml_source import SettingPath


class Problem(NamedTuple):
    """A problem and the path of its setting."""

    path: SettingPath
    message: str

    def __str__(self) -> str:
        dotted_path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"{dotted_path.removeprefix('.')}: {self.message}"
