"""Assigns streamed pieces of tool calls to calls. Servers identify calls by index, by id, by both or not at all.

`CallTracker.call_for_piece` finds the call of a piece, or starts a new one. The caller announces the calls.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.tool_names import ToolNames
from antiphon.protocol.codec import decode_json
from antiphon.protocol.open_items import TextPieces


class CallPiece(Struct, frozen=True, gc=False):
    """One entry of `tool_calls`."""

    index: int | None
    id: str
    name: str
    arguments: str
    is_custom: bool = False  # in the form that this dialect has for custom tools


class StreamedCall:
    """One call, as far as it was received."""

    __slots__ = (
        "freeform_input", "has_changing_id", "id", "index", "is_announced", "is_custom", "last_chunk", "name", "pieces",
    )  # fmt: skip

    def __init__(self, index: int | None, is_custom: bool, chunk: int) -> None:
        self.index = index
        self.is_custom = is_custom
        self.last_chunk = chunk
        self.id = ""
        self.name = ""
        self.pieces = TextPieces()
        self.is_announced = False
        self.has_changing_id = False  # whether its id changes from piece to piece
        self.freeform_input: FreeformInput | None = None

    def merge_piece(self, piece: CallPiece, names: ToolNames) -> None:
        """Merge id and name. A name that starts with the earlier one repeats it; other names are pieces of one name."""
        if self.is_announced:
            return
        self.id = self.id or piece.id
        is_repeated = piece.name.startswith(self.name) and not self.is_name_continued_by(piece, names)
        self.name = piece.name if is_repeated else self.name + piece.name

    def is_name_continued_by(self, piece: CallPiece, names: ToolNames) -> bool:
        """Whether the piece has the next part of the name of an offered tool."""
        if self.is_announced or not self.name or not piece.name or names.is_offered(self.name):
            return False
        return names.is_start_of_name(self.name + piece.name)

    def has_complete_arguments(self) -> bool:
        """Whether the arguments are a complete JSON object."""
        last = next((piece for piece in reversed(self.pieces) if not piece.isspace()), "")
        return last.rstrip().endswith("}") and _decode("".join(self.pieces)) is not None


class CallTracker:
    """All calls of one response, in the order of their first pieces."""

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self.calls: list[StreamedCall] = []
        self._by_index: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}

    def is_repeated_call(self, piece: CallPiece, chunk: int) -> bool:
        """Whether the piece is a whole call that an earlier chunk had: the same id, name and arguments."""
        call = self._by_id.get(piece.id)
        if call is None or piece.name != call.name or call.last_chunk == chunk or not piece.arguments.startswith("{"):
            return False
        if piece.index is not None and call.index not in (None, piece.index):
            return False
        arguments = _decode(piece.arguments)
        return arguments is not None and arguments == _decode("".join(call.pieces))

    def call_for_piece(self, piece: CallPiece, chunk: int) -> tuple[StreamedCall, bool]:
        """Return the call of the piece, and whether the piece starts it. `chunk` is the number of the chunk."""
        call = self._existing_call(piece)
        is_new = call is None or self._starts_new_call(call, piece, chunk)
        if call is None or is_new:
            call = StreamedCall(piece.index, piece.is_custom, chunk)
            self.calls.append(call)
        call.last_chunk = chunk
        call.merge_piece(piece, self._names)
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id and (is_new or piece.id not in self._by_id):
            self._by_id[piece.id] = call
        return call, is_new

    def unannounced_calls(self, before: StreamedCall | None = None) -> list[StreamedCall]:
        """Return the named calls to announce, except `before`: its name may have more pieces."""
        return [call for call in self.calls if call.name and not call.is_announced and call is not before]

    def _existing_call(self, piece: CallPiece) -> StreamedCall | None:
        by_id = self._by_id.get(piece.id)
        if by_id is not None and (not piece.name or piece.index is None or by_id.index in (None, piece.index)):
            return by_id
        if piece.index is not None:
            return self._by_index.get(piece.index)
        if not self.calls or (piece.id and piece.name):
            return None
        return self.calls[-1]

    def _starts_new_call(self, call: StreamedCall, piece: CallPiece, chunk: int) -> bool:
        """Whether a piece that matches `call` starts a new call, on servers with no index or one index for all."""
        if not piece.name:
            return False
        has_other_id = piece.id != call.id and bool(piece.id and call.id)
        if not has_other_id and call.is_name_continued_by(piece, self._names):
            return False
        if call.last_chunk == chunk and (has_other_id or not piece.id):
            return True
        if not call.pieces or not call.name:
            return has_other_id  # a late id or name belongs to this call
        if piece.name != call.name:
            return True
        # The server repeats the name in each chunk, perhaps with a new id. Only complete arguments end a call.
        if has_other_id and not call.has_changing_id:
            call.has_changing_id = not call.has_complete_arguments()
            return not call.has_changing_id
        return bool(piece.arguments.strip()) and call.has_complete_arguments()


def _decode(arguments: str) -> Any:
    """The arguments as a value, or None if they are not complete."""
    try:
        return decode_json(arguments)
    except ValueError:
        return None
