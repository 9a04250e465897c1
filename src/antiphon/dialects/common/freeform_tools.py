"""Custom tools on servers that know only functions: a function of one string, `{"input": "…"}`, and the string back out of it.

`FreeformInput` takes the arguments in any cut and gives the input as soon as it is certain. What a model writes instead of the one
string (other members, no JSON at all) is not lost: if nothing was given out yet, the raw text is the input; what follows a
whole string is left in `left_over`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import msgspec

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.tools import CustomTool, GrammarFormat

PARAMETER: Final = "input"
INPUT_DESCRIPTION: Final = "The whole input, as plain text: what is said of the input is meant of this string."


def description(tool: CustomTool, path: str, losses: Losses) -> str:
    """What the model is told of a custom tool: its grammar too, which nothing enforces."""
    text = tool.description or ""
    if tool.format:
        report_unknown_fields(tool.format, f"{path}.format", losses)
    if not isinstance(tool.format, GrammarFormat):
        return text
    losses.add(f"{path}.format", "that the input must match a grammar", "the model is told, but nothing enforces it")
    rule = f"The input must match this {tool.format.syntax} grammar:\n{tool.format.definition}"
    return f"{text}\n\n{rule}" if text else rule


def schema(description: str = INPUT_DESCRIPTION) -> dict[str, Any]:
    """The parameters of the function that stands for a custom tool."""
    return {
        "type": "object",
        "properties": {PARAMETER: {"type": "string", "description": description}},
        "required": [PARAMETER],
        "additionalProperties": False,
    }


def wrap_input(text: str) -> str:
    """The arguments of the function for this input."""
    return ARGUMENTS_PREFIX + wrap_delta(text) + ARGUMENTS_SUFFIX


def wrap_delta(text: str) -> str:
    """A piece of the input, escaped: `ARGUMENTS_PREFIX`, the pieces and `ARGUMENTS_SUFFIX` together are the arguments."""
    return msgspec.json.encode(text)[1:-1].decode()


class FreeformInput:
    """Arguments in, input out, piece by piece."""

    def __init__(self) -> None:
        self._pending = ""  # the beginning, until it is known; then an escape that was cut in two
        self._state: Literal["beginning", "inside", "after", "other"] = "beginning"
        self._rest: list[str] = []

    def feed(self, piece: str) -> str:
        """The input that `piece` makes certain."""
        if self._state == "after" or self._state == "other":
            self._rest.append(piece)
            return ""
        self._pending += piece
        if self._state == "beginning":
            begin = BEGIN.match(self._pending)
            if begin is None:
                if len(self._pending) > MAX_BEGIN:
                    self._state, self._rest, self._pending = "other", [self._pending], ""
                return ""
            self._state, self._pending = "inside", self._pending[begin.end() :]
        return self._string()

    def finish(self) -> str:
        """The arguments are over: what was held back, as it stands."""
        pending, self._pending = self._pending, ""
        if self._state == "beginning" or self._state == "other":
            pending, self._rest = self._other_form("".join([*self._rest, pending]))
        return pending

    @property
    def left_over(self) -> str:
        """After the end: what came besides the one string, empty as a rule."""
        rest = "".join(self._rest)
        return "" if END.fullmatch(rest) else rest

    def _string(self) -> str:
        """As much of the open string as can be told for certain."""
        text, at, decoded = self._pending, 0, []
        while special := SPECIAL.search(text, at):
            decoded.append(text[at : special.start()])
            at = special.start()
            if text[at] == '"':
                self._state, self._pending, self._rest = "after", "", [text[at + 1 :]]
                return "".join(decoded)
            escape = ESCAPE.match(text, at)
            if escape is None:
                break
            decoded.append(_meaning(escape[0]))
            at = escape.end()
        else:
            decoded.append(text[at:])
            at = len(text)
        self._pending = text[at:]
        return "".join(decoded)

    @staticmethod
    def _other_form(arguments: str) -> tuple[str, list[str]]:
        """Not the one string at the very beginning: perhaps it stands behind other members, which are left over then."""
        try:
            members = decode_json(arguments)
        except ValueError:
            return arguments, []
        if not isinstance(members, dict) or not isinstance(members.get(PARAMETER), str):
            return arguments, []
        text: str = members.pop(PARAMETER)
        return text, [msgspec.json.encode(members).decode()] if members else []


def _meaning(escape: str) -> str:
    """What an escape stands for. One that JSON does not know is taken as it is written; half of a pair is no character."""
    try:
        text: str = json.loads(f'"{escape}"')
    except ValueError:
        return escape
    return "\ufffd" if SURROGATE.match(text) else text


ARGUMENTS_PREFIX: Final = f'{{"{PARAMETER}":"'
ARGUMENTS_SUFFIX: Final = '"}'
MAX_BEGIN: Final = 200
BEGIN: Final = re.compile(rf'\s*\{{\s*"{PARAMETER}"\s*:\s*"')
END: Final = re.compile(r"\s*+\}?+\s*+")  # a bracket that never came is no loss
SPECIAL: Final = re.compile(r'["\\]')
SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A whole escape, a pair of them where the first is the first half of a character; no match while it may still go on.
ESCAPE: Final = re.compile(
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}     # a whole pair
    |   \\u[dD][89abAB][0-9a-fA-F]{2}(?!\\?\Z|\\u[0-9a-fA-F]{0,3}\Z)   # a first half that nothing can complete any more
    |   \\u(?![dD][89abAB])[0-9a-fA-F]{4}                              # any other character
    |   \\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)                          # broken off by what cannot be part of it
    |   \\[^u]                                                         # the short ones
    """,
    re.VERBOSE | re.DOTALL,
)
