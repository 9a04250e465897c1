"""Represents custom tools on servers that support only functions: a function with one string, `{"input": "…"}`.

`FreeformInput` takes the arguments in any pieces and returns the input as soon as it is certain. If a model writes
something other than this one string (other members, no JSON), the raw text is the input, unless input was already
returned. Text after a complete string is available as `left_over`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import msgspec

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import CustomTool, GrammarFormat

PARAMETER: Final = "input"
INPUT_DESCRIPTION: Final = "The whole input as plain text. The tool description refers to this string as the input."


def description(tool: CustomTool, path: str, losses: Losses) -> str:
    """The description of a custom tool for the model, including its grammar, which is not enforced."""
    text = tool.description or ""
    if tool.format:
        report_unknown_fields(tool.format, f"{path}.format", losses)
    if not isinstance(tool.format, GrammarFormat):
        return text
    losses.add(f"{path}.format", "the enforcement of a grammar", "the grammar is only described to the model")
    rule = f"The input must match this {tool.format.syntax} grammar:\n{tool.format.definition}"
    return f"{text}\n\n{rule}" if text else rule


def schema(description: str = INPUT_DESCRIPTION) -> dict[str, Any]:
    """The parameters of the function that represents a custom tool."""
    return {
        "type": "object",
        "properties": {PARAMETER: {"type": "string", "description": description}},
        "required": [PARAMETER],
        "additionalProperties": False,
    }


def wrap_input(text: str) -> str:
    """The function arguments for this input."""
    return ARGUMENTS_PREFIX + wrap_delta(text) + ARGUMENTS_SUFFIX


def wrap_delta(text: str) -> str:
    """Escapes a piece of the input. The arguments are `ARGUMENTS_PREFIX`, all pieces, and `ARGUMENTS_SUFFIX`."""
    return msgspec.json.encode(text)[1:-1].decode()


class FreeformInput:
    """Takes the arguments and returns the input, piece by piece."""

    def __init__(self) -> None:
        self._pending = ""  # the unrecognised beginning, later an incomplete escape
        self._state: Literal["beginning", "inside", "after", "other"] = "beginning"
        self._rest: list[str] = []

    def feed(self, piece: str) -> str:
        """The input that is certain after `piece`."""
        if self._state == "after" or self._state == "other":
            self._rest.append(piece)
            return ""
        self._pending += piece
        if self._state == "beginning":
            begin = INPUT_START.match(self._pending)
            if begin is None:
                if len(self._pending) > MAX_START_LENGTH:
                    self._state, self._rest, self._pending = "other", [self._pending], ""
                return ""
            self._state, self._pending = "inside", self._pending[begin.end() :]
        return self._take_string()

    def finish(self) -> str:
        """Ends the arguments and returns the pending text."""
        pending, self._pending = self._pending, ""
        if self._state == "beginning" or self._state == "other":
            pending, self._rest = self._decode_other_form("".join([*self._rest, pending]))
        return pending

    @property
    def left_over(self) -> str:
        """After the end: text besides the one string, usually empty."""
        rest = "".join(self._rest)
        return "" if CLOSING_BRACE.fullmatch(rest) else rest

    def _take_string(self) -> str:
        """The certain part of the open string."""
        text, index, decoded = self._pending, 0, []
        while special := QUOTE_OR_ESCAPE.search(text, index):
            decoded.append(text[index : special.start()])
            index = special.start()
            if text[index] == '"':
                self._state, self._pending, self._rest = "after", "", [text[index + 1 :]]
                return "".join(decoded)
            escape = ESCAPE.match(text, index)
            if escape is None:
                break
            decoded.append(_decode_escape(escape[0]))
            index = escape.end()
        else:
            decoded.append(text[index:])
            index = len(text)
        self._pending = text[index:]
        return "".join(decoded)

    @staticmethod
    def _decode_other_form(arguments: str) -> tuple[str, list[str]]:
        """Reads arguments with other members before the string. The other members are left over."""
        try:
            members = decode_json(arguments)
        except ValueError:
            return arguments, []
        if not isinstance(members, dict) or not isinstance(members.get(PARAMETER), str):
            return arguments, []
        text: str = members.pop(PARAMETER)
        return text, [msgspec.json.encode(members).decode()] if members else []


def _decode_escape(escape: str) -> str:
    """Decodes an escape. An invalid escape is kept as written; an unpaired surrogate becomes U+FFFD."""
    try:
        text: str = json.loads(f'"{escape}"')
    except ValueError:
        return escape
    return "\ufffd" if SURROGATE.match(text) else text


ARGUMENTS_PREFIX: Final = f'{{"{PARAMETER}":"'
ARGUMENTS_SUFFIX: Final = '"}'
MAX_START_LENGTH: Final = 200
INPUT_START: Final = re.compile(rf'\s*\{{\s*"{PARAMETER}"\s*:\s*"')
CLOSING_BRACE: Final = re.compile(r"\s*+\}?+\s*+")  # a missing closing bracket is no loss
QUOTE_OR_ESCAPE: Final = re.compile(r'["\\]')
SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A complete escape, or a complete pair of surrogate escapes. No match while the escape may continue.
ESCAPE: Final = re.compile(
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}     # a pair of surrogates
    |   \\u[dD][89abAB][0-9a-fA-F]{2}(?!\\?\Z|\\u[0-9a-fA-F]{0,3}\Z)   # a first surrogate without its second
    |   \\u(?![dD][89abAB])[0-9a-fA-F]{4}                              # any other character
    |   \\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)                          # an incomplete escape
    |   \\[^u]                                                         # a short escape
    """,
    re.VERBOSE | re.DOTALL,
)
