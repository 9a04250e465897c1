"""From findings to a profile: the verdicts so far (`Verdicts`), the settings that follow (`ProfileDraft`), and the TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from antiphon.probe.finding import ProbeFinding
from antiphon.probe.samples import TextForm


class Verdicts:
    """The verdicts so far, by the names of the experiments."""

    def __init__(self, findings: Iterable[ProbeFinding] = (), form: TextForm = "parts") -> None:
        self.form: TextForm = form
        self._verdicts = {finding.id: finding.verdict for finding in findings}

    def has(self, id: str) -> bool:
        """It was tried, and worked."""
        return self._verdicts.get(id) == "accepted"

    def was_tried(self, id: str) -> bool:
        return self._verdicts.get(id, "untried") != "untried"

    def lacks(self, id: str) -> bool:
        """It was tried, and did not work, for whatever reason."""
        return self.was_tried(id) and not self.has(id)

    def refuses(self, id: str) -> bool:
        """It was tried, and there was no answer to be had: what is merely ignored does no harm."""
        return self._verdicts.get(id) in ("refused", "down")

    def words(self, group: str, words: Iterable[str]) -> list[str]:
        """Those that it takes, if it does not take them all."""
        known = list(words)
        taken = [word for word in known if self.has(f"{group}.{word}")]
        return taken if any(self.lacks(f"{group}.{word}") for word in known) else []


class ProfileDraft:
    """A profile in the making."""

    def __init__(self, *, extends: str) -> None:
        self.extends = extends
        self.key_header = ""
        self.quirks: list[str | dict[str, Any]] = []
        self.wire: dict[str, Any] = {}

    def quirk(self, name: str, **options: Any) -> None:
        self.quirks.append({"name": name, **options} if options else name)

    def wire_if(self, holds: bool, **settings: Any) -> None:
        if holds:
            self.wire |= settings

    def toml(self, about: str, findings: Iterable[ProbeFinding]) -> str:
        """The file; what was found stands at its end, as comments."""
        lines = [f"about = {_toml(_comment(about))}", f"extends = {_toml(self.extends)}"]
        if self.key_header:
            lines.append(f"key_header = {_toml(self.key_header)}")
        if self.quirks:
            lines += ["quirks = [", *(f"    {_toml(quirk)}," for quirk in self.quirks), "]"]
        if self.wire:
            lines += ["", "[wire]", *(f"{name} = {_toml(value)}" for name, value in self.wire.items())]
        found = [finding for finding in findings if finding.verdict in ("refused", "ignored", "down")]
        if found:
            lines += ["", "# What was found, besides all that was accepted:"]
            lines += [f"# {finding.verdict:8} {finding.title}: {_comment(finding.said)}" for finding in found]
        return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """On one line, without characters that TOML refuses."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "{ " + ", ".join(f"{name} = {_toml(member)}" for name, member in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)  # a basic string of TOML is escaped as one of JSON is
