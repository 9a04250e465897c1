"""Whose piece is this? Servers number their tool calls by index, by id, by both or not at all, and repeat what they like.

`Calls.of` finds the call that a piece belongs to, or begins a new one. It tells nobody: announcing a call is the caller's.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.dialects.common.one_string import OneString
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.text_pieces import TextPieces


class CallPiece(Struct, frozen=True, gc=False):
    """What one entry of `tool_calls` brings."""

    index: int | None
    id: str
    name: str
    arguments: str
    is_custom: bool = False  # in the form that this dialect has for custom tools


class Call:
    """One call of the answer, as far as it has come."""

    __slots__ = ("announced", "chunk", "drifts", "id", "index", "is_custom", "name", "one_string", "pieces")

    def __init__(self, index: int | None, is_custom: bool, chunk: int) -> None:
        self.index = index
        self.is_custom = is_custom
        self.chunk = chunk
        self.id = ""
        self.name = ""
        self.pieces = TextPieces()
        self.announced = False
        self.drifts = False  # whether its id changes from piece to piece
        self.one_string: OneString | None = None

    def learn(self, piece: CallPiece) -> None:
        """Takes in id and name. A name sent twice is one name; otherwise what comes before the arguments are its pieces."""
        if not self.announced:
            self.id = self.id or piece.id
            self.name += piece.name if piece.name != self.name else ""

    def is_whole(self) -> bool:
        """Whether the arguments are a whole JSON object already."""
        last = next((piece for piece in reversed(self.pieces) if not piece.isspace()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            decode_json("".join(self.pieces))
        except ValueError:
            return False
        return True


class Calls:
    """All calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}

    def of(self, piece: CallPiece, chunk: int) -> tuple[Call, bool]:
        """The call that the piece belongs to, and whether it begins with it. `chunk` numbers the chunks."""
        call = self._known(piece)
        begins = call is None or self._is_another(call, piece, chunk)
        if call is None or begins:
            call = Call(piece.index, piece.is_custom, chunk)
            self.all.append(call)
        call.chunk = chunk
        call.learn(piece)
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id and (begins or piece.id not in self._by_id):
            self._by_id[piece.id] = call
        return call, begins

    def waiting(self, before: Call | None = None) -> list[Call]:
        """The calls that have a name and were not announced, up to one that has just begun: its name may have more pieces."""
        return [call for call in self.all if call.name and not call.announced and call is not before]

    def _known(self, piece: CallPiece) -> Call | None:
        by_id = self._by_id.get(piece.id)
        if by_id is not None and (not piece.name or piece.index is None or by_id.index in (None, piece.index)):
            return by_id
        if piece.index is not None:
            return self._by_index.get(piece.index)
        if not self.all or (piece.id and piece.name):
            return None
        return self.all[-1]

    @staticmethod
    def _is_another(call: Call, piece: CallPiece, chunk: int) -> bool:
        """Whether a piece that points at `call` begins another all the same: servers that give no index, or one for all."""
        if not piece.name:
            return False
        other_id = piece.id != call.id and bool(piece.id and call.id)
        if call.chunk == chunk and (other_id or not piece.id):
            return True
        if not call.pieces or not call.name:
            return other_id  # an id or a name that comes late is this call's own
        if piece.name != call.name:
            return True
        # The name again with every chunk, perhaps with another id each time: only whole arguments tell one call from the next.
        if other_id and not call.drifts:
            call.drifts = not call.is_whole()
            return not call.drifts
        return bool(piece.arguments.strip()) and call.is_whole()
