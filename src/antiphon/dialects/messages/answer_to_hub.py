"""The content blocks of a Messages answer, told to the writer: which item each block is, and when that item is done.

A block is an item, but text blocks that follow each other are parts of one message. A block that has stopped stays open in the hub
until something else begins, since only the end of the answer tells whether it was cut. Blocks that only this dialect knows are
carried as they are (`answers.block_to_item`). Blocks may overlap, though they should not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, assert_never

import msgspec
from msgspec import Raw, Struct, field

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.sendable_names import SendableCalls
from antiphon.dialects.common.stream_to_hub import StreamOutcome
from antiphon.dialects.common.tool_names import ToolNames
from antiphon.dialects.messages.answers import PREFIX, AnswerBlockIn, DeltaIn, block_to_item
from antiphon.dialects.messages.citations import citation_to_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.base import is_extension_type
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import PART_OVERHEAD
from antiphon.protocol.text_pieces import TextPieces
from antiphon.protocol.writer import ResponseWriter


class AnswerToHub:
    """One answer, block by block."""

    def __init__(
        self, writer: ResponseWriter, losses: Losses, names: ToolNames, new_id: Callable[[str], str], wire: MessagesWire
    ) -> None:
        self._writer = writer
        self._losses = losses
        self._names = names
        self._wire = wire
        self._items = 0
        self._blocks: dict[int, _Block] = {}
        self._last: _Block | None = None  # the one whose item was announced last
        self._idle: _Block | None = None  # that one, once it has stopped and while its item is still open
        self._returnable = SendableCalls("tool_use", losses, new_id)
        #: The writer's key of the text block that is being written, and its index; None if nothing or something else is.
        self.open_text_key: int | None = None
        self.open_text_index = -1
        #: How many characters of it went to the writer by the short way.
        self.fast_path_length = 0

    @property
    def open_indices(self) -> list[int]:
        return list(self._blocks)

    def start_block(self, index: int, raw: Raw) -> None:
        """A block begins; in an answer that does not stream it is whole."""
        self._writer.count(PART_OVERHEAD)
        if index in self._blocks:
            self.stop_block(index)  # its end never came
        try:
            block = _decode_block(raw)
            msgspec.json.decode(raw)  # what is still to be read in it can be
        except ValueError:
            self._losses.add(f"content[{index}]", "a block that cannot be read is left out")
            return
        match block.type:
            case "text":
                self._start_text(index, block)
            case "thinking":
                self._blocks[index] = _Thinking()
                self.add_delta(index, DeltaIn(thinking=block.thinking, signature=block.signature))
            case "redacted_thinking":
                redacted = _Thinking(redacted=block.data or "")
                self._blocks[index] = redacted
                self._begin(redacted)
            case "tool_use":
                self._start_call(index, block, raw)
            case kind:
                self._start_carried(index, kind, raw)

    def add_delta(self, index: int, delta: DeltaIn) -> None:
        """A piece of a block. Text and thoughts for a block that never began begin one."""
        block = self._blocks.get(index)
        if delta.text:
            self._add_text(index, block if type(block) is _Text else self._in_place(index, _Text()), delta.text)
        if delta.thinking or delta.signature:
            thinking = block if type(block) is _Thinking else self._in_place(index, _Thinking())
            self._think(thinking, delta.thinking or "", delta.signature or "")
        if delta.partial_json:
            self._argue(index, block, delta.partial_json)
        if delta.citation:
            self._writer.count(PART_OVERHEAD + len(delta.citation))
            (block if type(block) is _Text else self._in_place(index, _Text())).citations.append(delta.citation)

    def add_unknown_delta(self, index: int, kind: str, event: bytes) -> None:
        """A delta of a kind that is no text, thought, argument or citation; the event holds it."""
        block = self._blocks.get(index)
        if type(block) is not _Carried or kind != f"{block.kind}_delta":
            self._losses.add(f"content[{index}]", f"a delta of type {kind[:50]!r} has no place in the hub")
            return
        members = _decode_raw_delta(event).delta if _decoded(event) is not None else {}
        if not members:
            self._losses.add(
                f"content[{index}]", f"a delta of type {kind[:50]!r} cannot be carried", "it is no sound JSON"
            )
        block.members |= {name: value for name, value in members.items() if name != "type" and bytes(value) != b"null"}

    def stop_block(self, index: int) -> None:
        """A block is whole. One that had nothing to say leaves nothing behind."""
        block = self._blocks.pop(index, None)
        match block:
            case None:
                return
            case _Text():
                self._end_text(index, block)
            case _Thinking():
                self._seal(block)
            case _Call():
                pass
            case _Carried():
                self._end_carried(index, block)
            case _ as never:
                assert_never(never)
        if block.key is None or type(block) is _Carried:
            return
        if block is self._last:
            self._idle = block
        else:
            self._close(block)

    def add_refusal(self, explanation: str) -> None:
        """STR-11: the model declines, in these words."""
        for index in self.open_indices:
            self.stop_block(index)
        refusal = _Text()
        self._begin(refusal)
        assert refusal.key is not None
        self._writer.refusal(refusal.key, explanation)
        self._idle = refusal

    def finish(self, outcome: StreamOutcome) -> None:
        """The answer is over; the items that are still open close with the response."""
        for index in self.open_indices:
            self.stop_block(index)
        if self._idle is not None and outcome == "completed":
            self._close(self._idle)
        elif type(self._idle) is _Call:
            self._end_call(self._idle, cut=True)
        self._idle = None

    # Items

    def _begin(self, block: _Block) -> None:
        """Something else begins: what was idle is done, unless more text follows a text."""
        idle, self._idle, self._last = self._idle, None, block
        if type(idle) is _Text and type(block) is _Text:
            block.key = idle.key
            return
        if idle is not None:
            self._close(idle)
        self._items += 1
        block.key = self._items

    def _close(self, block: _Block) -> None:
        assert block.key is not None
        if type(block) is _Call:
            self._end_call(block, cut=False)
        self._writer.close(block.key)

    def _in_place(self, index: int, block: _AnyBlock) -> _AnyBlock:
        """A block that was not announced, or announced as something else."""
        self.stop_block(index)
        self._blocks[index] = block
        return block

    # Text

    def _start_text(self, index: int, block: AnswerBlockIn) -> None:
        text = _Text(citations=list(block.citations or ()))
        self._blocks[index] = text
        if block.text:
            self._add_text(index, text, block.text)

    def _add_text(self, index: int, block: _Text, text: str) -> None:
        if block.key is None:
            self._begin(block)
            assert block.key is not None
            plain = self._blocks.get(self.open_text_index)
            if type(plain) is _Text:  # another text is still open
                self._end_open_text(plain)
            self.open_text_key, self.open_text_index = block.key, index
        self._writer.text(block.key, text, part=None)
        block.length += len(text)

    def _end_open_text(self, block: _Text) -> None:
        """What is counted apart while the short way is open to a block."""
        block.length += self.fast_path_length
        self.open_text_key, self.open_text_index, self.fast_path_length = None, -1, 0

    def _end_text(self, index: int, block: _Text) -> None:
        if index == self.open_text_index:
            self._end_open_text(block)
        if block.key is None:
            if block.citations:
                self._losses.add("content.citations", "citations of a text that never came")
            return
        for raw in block.citations:
            citation = _decoded(raw)
            if isinstance(citation, dict):
                self._writer.annotation(block.key, citation_to_hub(citation, block.length))
            else:
                self._losses.add("content.citations", "a citation that cannot be read is left out")
        self._writer.end_part(block.key)

    # Thoughts

    def _think(self, block: _Thinking, text: str, signature: str) -> None:
        if text:
            if block.key is None:
                self._begin(block)
            self._writer.reasoning(block.key, text)
            block.pieces.append(text)
        if signature:
            self._writer.count(len(signature))
            block.signatures.append(signature)

    def _seal(self, block: _Thinking) -> None:
        """RSN-2: what the server must get back, with its text: clients may drop that."""
        if block.redacted is not None:
            content = {"redacted": block.redacted}
        elif block.signatures or (block.pieces and self._wire.unsigned_thinking):
            content = {"thinking": "".join(block.pieces), "signature": "".join(block.signatures)}
        else:
            return
        if block.key is None:
            self._begin(block)
        self._writer.encrypted_content(block.key, seal_reasoning(self._wire.maker, content))

    # Calls

    def _start_call(self, index: int, block: AnswerBlockIn, raw: Raw) -> None:
        if not block.name:
            self._losses.add(f"content[{index}]", "a call without a name is not delivered")
            return
        called = self._names.original_tool(block.name)
        name = self._returnable.name(called)
        call = _Call(given=_compact(block.input), one_string=FreeformInput() if called.kind == "custom" else None)
        self._blocks[index] = call
        self._begin(call)
        announce = self._writer.call if call.one_string is None else self._writer.custom_call
        announce(call.key, name=name, call_id=self._returnable.id(block.id or ""), namespace=called.namespace)
        extra_fields = {
            name: value
            for name, value in _decode_members(raw).items()
            if name in KEPT and msgspec.json.decode(value) not in SAYS_NOTHING
        }
        if extra_fields:
            self._writer.set_extra_fields(call.key, extra_fields)

    def _argue(self, index: int, block: _Block | None, piece: str) -> None:
        match block:
            case _Call():
                block.began = True
                self._arguments(block, piece)
            case _Carried():
                self._writer.count(len(piece))
                block.pieces.append(piece)
            case _:
                self._losses.add(f"content[{index}]", "arguments of a call that never began")

    def _arguments(self, call: _Call, piece: str) -> None:
        if call.one_string is None:
            self._writer.arguments(call.key, piece)
        else:
            self._writer.count(len(piece))
            self._writer.custom_input(call.key, call.one_string.feed(piece))

    def _end_call(self, call: _Call, *, cut: bool) -> None:
        """A call that had no pieces had its arguments from the beginning, or has none: `{}`, unless it was cut before them."""
        if not call.began and not (cut and call.given == "{}"):
            self._arguments(call, call.given)
        if call.one_string is not None:
            self._writer.custom_input(call.key, call.one_string.finish())
            if rest := call.one_string.left_over:
                self._losses.add("tool_use.input", f"a custom tool takes one string: {rest[:80]!r} is left over")

    # Blocks of this dialect alone

    def _start_carried(self, index: int, kind: str, raw: Raw) -> None:
        if not is_extension_type(PREFIX + kind):
            self._losses.add(f"content[{index}]", f"a block of type {kind[:50]!r} cannot be carried", "it is no name")
            return
        raw = Raw(_compact(raw).encode())
        carried = _Carried(kind=kind, members=_decode_members(raw))
        self._blocks[index] = carried
        self._begin(carried)
        self._writer.extension_item(carried.key, PREFIX + kind, {"block": raw})

    def _end_carried(self, index: int, block: _Carried) -> None:
        """It is whole by itself, whatever becomes of the answer."""
        if block.pieces:
            try:
                block.members["input"] = Raw(_compact(Raw("".join(block.pieces).encode())).encode())
            except ValueError:
                self._losses.add(
                    f"content[{index}].input", f"the input of a {block.kind} block is no JSON, and left out"
                )
        self._writer.finish_item(block.key, block_to_item(block.kind, Raw(msgspec.json.encode(block.members)), id=""))
        self._last = self._last if self._last is not block else None


class _Open(Struct):
    """A block that has not stopped; its key is the writer's, once it was announced there."""

    key: int | None = None


class _Text(_Open):
    length: int = 0
    citations: list[Raw] = []


class _Thinking(_Open):
    pieces: TextPieces = field(default_factory=TextPieces)
    signatures: TextPieces = field(default_factory=TextPieces)
    redacted: str | None = None


class _Call(_Open, kw_only=True):
    given: str
    one_string: FreeformInput | None
    began: bool = False


class _Carried(_Open, kw_only=True):
    kind: str
    members: dict[str, Any]
    pieces: TextPieces = field(default_factory=TextPieces)


_Block = _Text | _Thinking | _Call | _Carried
_AnyBlock = TypeVar("_AnyBlock", _Text, _Thinking)


class _RawDelta(Struct, frozen=True):
    """An event whose delta is of a kind of its own."""

    delta: dict[str, Raw]


def _decoded(raw: bytes | Raw) -> Any:
    """JSON of whatever form; None if a number or a character in it is beyond all measure."""
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        return None


def _compact(raw: Raw) -> str:
    """JSON without white space; null where arguments stand is none."""
    text = msgspec.json.format(bytes(raw), indent=-1).decode()
    return "{}" if text == "null" else text


#: Members of a call that go back with it.
KEPT: Final = frozenset({"caller", "toolset_name"})
SAYS_NOTHING: Final = (None, {"type": "direct"})
_decode_block: Final = msgspec.json.Decoder(AnswerBlockIn).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raw_delta: Final = msgspec.json.Decoder(_RawDelta).decode
