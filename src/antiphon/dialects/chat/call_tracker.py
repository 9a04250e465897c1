"""Assigns streamed pieces of tool calls to calls. Servers identify calls by index, by id, by both or not at all.

`CallTracker.call_for_piece` finds the call of a piece, or starts a new one. The caller announces the calls.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.dialects.common.freeform_tools import FreeformInput
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

    def merge_piece(self, piece: CallPiece) -> None:
        """Merge id and name. A repeated name is ignored; other names before the arguments are pieces of one name."""
        if not self.is_announced:
            self.id = self.id or piece.id
            self.name += piece.name if piece.name != self.name else ""

    def has_complete_arguments(self) -> bool:
        """Whether the arguments are a complete JSON object."""
        last = next((piece for piece in reversed(self.pieces) if not piece.isspace()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            decode_json("".join(self.pieces))
        except ValueError:
            return False
        return True


class CallTracker:
    """All calls of one response, in the order of their first pieces."""

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._by_index: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}

    def call_for_piece(self, piece: CallPiece, chunk: int) -> tuple[StreamedCall, bool]:
        """Return the call of the piece, and whether the piece starts it. `chunk` is the number of the chunk."""
        call = self._existing_call(piece)
        is_new = call is None or self._starts_new_call(call, piece, chunk)
        if call is None or is_new:
            call = StreamedCall(piece.index, piece.is_custom, chunk)
            self.calls.append(call)
        call.last_chunk = chunk
        call.merge_piece(piece)
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

    @staticmethod
    def _starts_new_call(call: StreamedCall, piece: CallPiece, chunk: int) -> bool:
        """Whether a piece that matches `call` starts a new call, on servers with no index or one index for all."""
        if not piece.name:
            return False
        has_other_id = piece.id != call.id and bool(piece.id and call.id)
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
