"""Turn findings into a profile: verdicts (`Verdicts`), the settings from them (`ProfileDraft`), and the TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.probe.finding import ProbeFinding
from antiphon.probe.samples import TextForm


class Verdicts:
    """The verdicts by experiment id."""

    def __init__(self, findings: Iterable[ProbeFinding] = (), form: TextForm = "parts") -> None:
        self.form: TextForm = form
        all_findings = list(findings)
        self._verdicts = {finding.id: finding.verdict for finding in all_findings}
        self._limits = {finding.id: finding.limit for finding in all_findings}

    def has(self, id: str) -> bool:
        """Whether the experiment was accepted."""
        return self._verdicts.get(id) == "accepted"

    def was_tried(self, id: str) -> bool:
        return self._verdicts.get(id, "untried") != "untried"

    def lacks(self, id: str) -> bool:
        """Whether the experiment was tried and not accepted, for any reason."""
        return self.was_tried(id) and not self.has(id)

    def refuses(self, id: str) -> bool:
        """Whether the experiment was refused or not answered. A field that is only ignored does no harm."""
        return self._verdicts.get(id) in ("refused", "down")

    def limit(self, id: str) -> int | None:
        """The largest accepted number; None if no larger one was refused."""
        return self._limits.get(id)

    def accepted_words(self, group: str, words: Sequence[str]) -> list[str]:
        """Return the accepted words of a group; empty if no word of the group failed."""
        accepted = [word for word in words if self.has(f"{group}.{word}")]
        return accepted if any(self.lacks(f"{group}.{word}") for word in words) else []


class ProfileDraft:
    """The settings of a profile, collected from conclusions."""

    def __init__(self, *, extends: str) -> None:
        self.extends = extends
        self.key_header = ""
        self.quirks: list[str | dict[str, Any]] = []
        self.wire: dict[str, Any] = {}

    def add_quirk(self, name: str, **options: Any) -> None:
        self.quirks.append({"name": name, **options} if options else name)

    def set_wire_if(self, condition: bool, **settings: Any) -> None:
        if condition:
            self.wire |= settings

    def set_limits(self, verdicts: Verdicts, *, min_name_length: int = 16, min_id_length: int = 8) -> None:
        """Set the limits of tools: their number, the length of their names and of the ids of their calls."""
        tools, name, call_id = (verdicts.limit(id) for id in ("limit.tools", "limit.name", "limit.call-id"))
        if tools:
            self.add_quirk("limit_tools", limit=tools)
        if call_id is not None and call_id >= min_id_length:
            self.add_quirk("shorten_call_ids", limit=call_id)
        self.set_wire_if(name is not None and name >= min_name_length, max_name_length=name)

    def toml(self, about: str, findings: Iterable[ProbeFinding]) -> str:
        """Render the TOML file, with the failed experiments as comments at its end."""
        lines = [f"about = {_encode_toml(_as_one_line(about))}", f"extends = {_encode_toml(self.extends)}"]
        if self.key_header:
            lines.append(f"key_header = {_encode_toml(self.key_header)}")
        if self.quirks:
            lines += ["quirks = [", *(f"    {_encode_toml(add_quirk)}," for add_quirk in self.quirks), "]"]
        if self.wire:
            lines += ["", "[wire]", *(f"{name} = {_encode_toml(value)}" for name, value in self.wire.items())]
        problems = [finding for finding in findings if finding.verdict in ("refused", "ignored", "down")]
        if problems:
            lines += ["", "# Features that the server did not accept:"]
            lines += [f"# {finding.verdict:8} {finding.title}: {_as_one_line(finding.detail)}" for finding in problems]
        return "\n".join(lines) + "\n"


def _as_one_line(text: str) -> str:
    """Put a text on one line, without characters that TOML refuses."""
    return "".join(character if character.isprintable() else " " for character in text)


def _encode_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "{ " + ", ".join(f"{name} = {_encode_toml(member)}" for name, member in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_encode_toml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)  # TOML basic strings are escaped like JSON strings
