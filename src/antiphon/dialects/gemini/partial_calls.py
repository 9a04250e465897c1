"""Joins the pieces of a streamed function call (`partialArgs`, `willContinue`) into one call.

A piece has the JSON path of its value (`$.rows[0].name`), and a string may come in several pieces. Only paths with
member names and indexes are read. An index may extend its array by one, so that a path cannot make a large array.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from msgspec import UNSET

from antiphon.dialects.gemini.response_wire import AnswerFunctionCallIn, PartialArgIn
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.open_items import TextPieces


class PartialCall:
    """A call whose pieces are still arriving."""

    def __init__(self, call: AnswerFunctionCallIn, losses: Losses) -> None:
        self.id = call.id or ""
        self.name = call.name or ""
        self._arguments: dict[str, Any] = {}
        self._losses = losses
        self._open_path = ""
        self._open_text: TextPieces | None = None  # the string at `_open_path`, which the next piece may continue
        self.add_piece(call)

    def is_continued_by(self, call: AnswerFunctionCallIn) -> bool:
        """Whether `call` is a piece of this call. A name starts a new call, unless the id is the same."""
        return not call.name or bool(self.id and call.id == self.id)

    def add_piece(self, call: AnswerFunctionCallIn) -> None:
        if call.name and call.name != self.name:
            self.name += call.name  # a name in several pieces
        self._arguments.update(call.args or {})
        for piece in call.partial_args or ():
            self._add_value(piece)

    def arguments(self) -> dict[str, Any]:
        """The arguments so far."""
        self._end_text()
        return self._arguments

    def _add_value(self, piece: PartialArgIn) -> None:
        value, path = _value_of(piece), piece.json_path or ""
        if path != self._open_path:
            self._end_text()
        if isinstance(value, str):
            self._open_path = path
            self._open_text = self._open_text or TextPieces()
            self._open_text.append(value)
        elif value is not UNSET:
            self._set_value(path, value)
        if not piece.will_continue:
            self._end_text()

    def _end_text(self) -> None:
        pieces, self._open_text = self._open_text, None
        if pieces is not None:
            self._set_value(self._open_path, "".join(pieces))

    def _set_value(self, path: str, value: Any) -> None:
        steps = _steps_of(path)
        if not steps or not _set_at(self._arguments, steps, value):
            self._losses.add(
                "functionCall.partialArgs", f"the value at the path {path[:80]!r}", "the path cannot be followed"
            )


def _value_of(piece: PartialArgIn) -> Any:
    """The value of a piece; UNSET if it has none."""
    values = (piece.string_value, piece.number_value, piece.bool_value)
    default = UNSET if piece.null_value is UNSET else None
    return next((value for value in values if value is not None), default)


def _steps_of(path: str) -> list[str | int]:
    """The member names and indexes of a path; empty if the path has another form, or is too deep."""
    if PATH.fullmatch(path) is None:
        return []
    steps: list[str | int] = []
    for name, index, quoted in STEP.findall(path):
        steps.append(int(index) if index else name or ESCAPE.sub(r"\1", quoted[1:-1]))
    return steps if len(steps) <= MAX_DEPTH and isinstance(steps[0], str) else []


def _set_at(arguments: dict[str, Any], steps: list[str | int], value: Any) -> bool:
    """Set the value at a path. Returns whether the path can be followed."""
    container: Any = arguments
    for step, next_step in pairwise(steps):
        if not _can_hold(container, step):
            return False
        if isinstance(container, dict):
            container.setdefault(step, _empty_container(next_step))
        elif step == len(container):
            container.append(_empty_container(next_step))
        container = container[step]
    last = steps[-1]
    if not _can_hold(container, last):
        return False
    if isinstance(container, list) and last == len(container):
        container.append(value)
    else:
        container[last] = value
    return True


def _can_hold(container: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(container, list) and step <= len(container)
    return isinstance(container, dict)


def _empty_container(next_step: str | int) -> dict[str, Any] | list[Any]:
    return [] if isinstance(next_step, int) else {}


STEP: Final = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,6})\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")
PATH: Final = re.compile(rf"\$(?:{STEP.pattern})+")
ESCAPE: Final = re.compile(r"\\(.)")
MAX_DEPTH: Final = MAX_NESTING // 2
