"""Writes the content blocks of a Messages answer to the response writer as hub items.

A block is an item, except that consecutive text blocks are parts of one message. The item of a stopped block stays open
until another block starts, because only the end of the answer shows whether it was cut. Blocks that only this dialect
has travel unchanged (`wire.block_to_item`). Blocks may overlap, although the API does not allow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, assert_never

import msgspec
from msgspec import Raw, Struct, field

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.server_turn import StreamOutcome
from antiphon.dialects.common.tool_names import SendableCalls, ToolNames
from antiphon.dialects.messages.content_in import citation_to_hub
from antiphon.dialects.messages.response_wire import AnswerBlockIn, DeltaIn
from antiphon.dialects.messages.wire import PREFIX, MessagesWire, block_to_item
from antiphon.protocol.base import is_extension_type
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import TextPieces
from antiphon.protocol.output_limits import PART_OVERHEAD_BYTES
from antiphon.protocol.writer import ResponseWriter


class AnswerToHub:
    """Translates one answer, block by block."""

    def __init__(
        self, writer: ResponseWriter, losses: Losses, names: ToolNames, new_id: Callable[[str], str], wire: MessagesWire
    ) -> None:
        self._writer = writer
        self._losses = losses
        self._wire = wire
        self._item_count = 0
        self._blocks: dict[int, _Block] = {}
        self._last_block: _Block | None = None  # the block whose item was announced last
        self._idle_block: _Block | None = None  # that block after it stopped, while its item is open
        self._sendable_calls = SendableCalls("tool_use", names, losses, new_id)
        #: The writer's key of the open text block, and its index; None if no text block is open.
        self.open_text_key: int | None = None
        self.open_text_index = -1
        #: How many characters of it took the fast path to the writer.
        self.fast_path_length = 0

    @property
    def open_indices(self) -> list[int]:
        return list(self._blocks)

    def start_block(self, index: int, raw: Raw) -> None:
        """Start a block. In an answer that does not stream the block is whole."""
        self._writer.count_bytes(PART_OVERHEAD_BYTES)
        if index in self._blocks:
            self.stop_block(index)  # its stop event is missing
        try:
            block = _decode_block(raw)
            msgspec.json.decode(raw)  # checks that the members that are decoded later are valid JSON
        except ValueError:
            self._losses.add(f"content[{index}]", "a block", "it has an unknown form")
            return
        match block.type:
            case "text":
                self._start_text(index, block)
            case "thinking":
                self._blocks[index] = _ThinkingBlock()
                self.add_delta(index, DeltaIn(thinking=block.thinking, signature=block.signature))
            case "redacted_thinking":
                redacted = _ThinkingBlock(redacted=block.data or "")
                self._blocks[index] = redacted
                self._begin_item(redacted)
            case "tool_use":
                self._start_call(index, block, raw)
            case kind:
                self._start_native(index, kind, raw)

    def add_delta(self, index: int, delta: DeltaIn) -> None:
        """Add a piece of a block. Text and thoughts for a block that did not start open one."""
        block = self._blocks.get(index)
        if delta.text:
            self._add_text(
                index, block if type(block) is _TextBlock else self._replace_block(index, _TextBlock()), delta.text
            )
        if delta.thinking or delta.signature:
            thinking = block if type(block) is _ThinkingBlock else self._replace_block(index, _ThinkingBlock())
            self._add_thought(thinking, delta.thinking or "", delta.signature or "")
        if delta.partial_json:
            self._add_arguments(index, block, delta.partial_json)
        if delta.citation:
            self._writer.count_bytes(PART_OVERHEAD_BYTES + len(delta.citation))
            (block if type(block) is _TextBlock else self._replace_block(index, _TextBlock())).citations.append(
                delta.citation
            )

    def add_unknown_delta(self, index: int, kind: str, event: bytes) -> None:
        """Add a delta of an unknown kind; `event` contains it."""
        block = self._blocks.get(index)
        if type(block) is not _NativeBlock or kind != f"{block.kind}_delta":
            self._losses.add(f"content[{index}]", f"a delta of type {kind[:50]!r}", "Open Responses has no equivalent")
            return
        members = _decode_raw_delta(event).delta if _decode_or_none(event) is not None else {}
        if not members:
            self._losses.add(f"content[{index}]", f"a delta of type {kind[:50]!r}", "it is not valid JSON")
        block.members |= {name: value for name, value in members.items() if name != "type" and bytes(value) != b"null"}

    def stop_block(self, index: int) -> None:
        """Stop a block. A block without content leaves no item."""
        block = self._blocks.pop(index, None)
        match block:
            case None:
                return
            case _TextBlock():
                self._end_text(index, block)
            case _ThinkingBlock():
                self._seal(block)
            case _CallBlock():
                pass
            case _NativeBlock():
                self._end_native(index, block)
            case _ as never:
                assert_never(never)
        if block.key is None or type(block) is _NativeBlock:
            return
        if block is self._last_block:
            self._idle_block = block
        else:
            self._close_item(block)

    def add_refusal(self, explanation: str) -> None:
        """STR-11: add a refusal with this text."""
        for index in self.open_indices:
            self.stop_block(index)
        refusal = _TextBlock()
        self._begin_item(refusal)
        assert refusal.key is not None
        self._writer.add_refusal(refusal.key, explanation)
        self._idle_block = refusal

    def finish(self, outcome: StreamOutcome) -> None:
        """End the answer. Items that are still open are closed with the response."""
        was_cut = bool(self.open_indices) or outcome != "unknown"
        for index in self.open_indices:
            self.stop_block(index)
        if self._idle_block is not None and outcome == "completed":
            self._close_item(self._idle_block)
        elif type(self._idle_block) is _CallBlock:
            self._end_call(self._idle_block, was_cut=was_cut)
        self._idle_block = None

    # Items

    def _begin_item(self, block: _Block) -> None:
        """Give a block its item key. The idle item is closed first, unless a text follows a text."""
        idle, self._idle_block, self._last_block = self._idle_block, None, block
        if type(idle) is _TextBlock and type(block) is _TextBlock:
            block.key = idle.key
            return
        if idle is not None:
            self._close_item(idle)
        self._item_count += 1
        block.key = self._item_count

    def _close_item(self, block: _Block) -> None:
        assert block.key is not None
        if type(block) is _CallBlock:
            self._end_call(block, was_cut=False)
        self._writer.close_item(block.key)

    def _replace_block(self, index: int, block: _AnyBlock) -> _AnyBlock:
        """Store a block that was not announced, or was announced as another kind."""
        self.stop_block(index)
        self._blocks[index] = block
        return block

    # Text

    def _start_text(self, index: int, block: AnswerBlockIn) -> None:
        text = _TextBlock(citations=list(block.citations or ()))
        self._blocks[index] = text
        if block.text:
            self._add_text(index, text, block.text)

    def _add_text(self, index: int, block: _TextBlock, text: str) -> None:
        if block.key is None:
            self._begin_item(block)
            assert block.key is not None
            open_block = self._blocks.get(self.open_text_index)
            if type(open_block) is _TextBlock:  # another text block is still open
                self._end_open_text(open_block)
            self.open_text_key, self.open_text_index = block.key, index
        self._writer.add_text(block.key, text, part_key=None)
        block.length += len(text)

    def _end_open_text(self, block: _TextBlock) -> None:
        """Count the characters that took the fast path."""
        block.length += self.fast_path_length
        self.open_text_key, self.open_text_index, self.fast_path_length = None, -1, 0

    def _end_text(self, index: int, block: _TextBlock) -> None:
        if index == self.open_text_index:
            self._end_open_text(block)
        if block.key is None:
            if block.citations:
                self._losses.add("content.citations", "citations", "their text was not sent")
            return
        for raw in block.citations:
            citation = _decode_or_none(raw)
            if isinstance(citation, dict):
                self._writer.add_annotation(block.key, citation_to_hub(citation, block.length))
            else:
                self._losses.add("content.citations", "a citation", "it has an unknown form")
        self._writer.end_part(block.key)

    # Thoughts

    def _add_thought(self, block: _ThinkingBlock, text: str, signature: str) -> None:
        if text:
            if block.key is None:
                self._begin_item(block)
            self._writer.add_reasoning(block.key, text)
            block.pieces.append(text)
        if signature:
            self._writer.count_bytes(len(signature))
            block.signatures.append(signature)

    def _seal(self, block: _ThinkingBlock) -> None:
        """RSN-2: seal what the server needs back, with the text, because clients may drop the text."""
        if block.redacted is not None:
            content = {"redacted": block.redacted}
        elif block.signatures or (block.pieces and self._wire.unsigned_thinking):
            content = {"thinking": "".join(block.pieces), "signature": "".join(block.signatures)}
        else:
            return
        if block.key is None:
            self._begin_item(block)
        self._writer.set_encrypted_content(block.key, seal_reasoning(self._wire.maker, content))

    # Calls

    def _start_call(self, index: int, block: AnswerBlockIn, raw: Raw) -> None:
        if not block.name:
            self._losses.add(f"content[{index}]", "a call without a name")
            return
        called = self._sendable_calls.tool(block.name)
        call = _CallBlock(
            initial_input=_compact_json(block.input),
            freeform_input=FreeformInput() if called.kind == "custom" else None,
        )
        self._blocks[index] = call
        self._begin_item(call)
        announce = self._writer.open_call if call.freeform_input is None else self._writer.open_custom_call
        announce(
            call.key, name=called.name, call_id=self._sendable_calls.id(block.id or ""), namespace=called.namespace
        )
        extra_fields = {
            name: value
            for name, value in _decode_members(raw).items()
            if name in RETURNED_CALL_MEMBERS and msgspec.json.decode(value) not in DEFAULT_VALUES
        }
        if extra_fields:
            self._writer.set_extra_fields(call.key, extra_fields)

    def _add_arguments(self, index: int, block: _Block | None, piece: str) -> None:
        match block:
            case _CallBlock():
                block.has_arguments = True
                self._write_arguments(block, piece)
            case _NativeBlock():
                self._writer.count_bytes(len(piece))
                block.pieces.append(piece)
            case _:
                self._losses.add(f"content[{index}]", "arguments", "their call did not start")

    def _write_arguments(self, call: _CallBlock, piece: str) -> None:
        if call.freeform_input is None:
            self._writer.add_arguments(call.key, piece)
        else:
            self._writer.count_bytes(len(piece))
            self._writer.add_custom_input(call.key, call.freeform_input.feed(piece))

    def _end_call(self, call: _CallBlock, *, was_cut: bool) -> None:
        """A call without argument deltas has its arguments in the start event, or none: `{}`, unless it was cut."""
        if not call.has_arguments and not (was_cut and call.initial_input == "{}"):
            self._write_arguments(call, call.initial_input)
        if call.freeform_input is not None:
            self._writer.add_custom_input(call.key, call.freeform_input.finish())
            if rest := call.freeform_input.left_over:
                self._losses.add("tool_use.input", f"{rest[:80]!r}", "a custom tool accepts one string")

    # Blocks that only this dialect has

    def _start_native(self, index: int, kind: str, raw: Raw) -> None:
        if not is_extension_type(PREFIX + kind):
            self._losses.add(f"content[{index}]", f"a block of type {kind[:50]!r}", "its type is not a valid name")
            return
        raw = Raw(_compact_json(raw).encode())
        native_block = _NativeBlock(kind=kind, members=_decode_members(raw))
        self._blocks[index] = native_block
        self._begin_item(native_block)
        self._writer.open_extension_item(native_block.key, PREFIX + kind, {"block": raw})

    def _end_native(self, index: int, block: _NativeBlock) -> None:
        """Such a block is complete by itself, however the answer ends."""
        if block.pieces:
            try:
                block.members["input"] = Raw(_compact_json(Raw("".join(block.pieces).encode())).encode())
            except ValueError:
                self._losses.add(
                    f"content[{index}].input", f"the input of a {block.kind} block", "it is not valid JSON"
                )
        self._writer.finish_item(block.key, block_to_item(block.kind, Raw(msgspec.json.encode(block.members)), id=""))
        self._last_block = self._last_block if self._last_block is not block else None


class _OpenBlock(Struct):
    """A block that has not stopped. `key` is the writer's key, set when the block is announced."""

    key: int | None = None


class _TextBlock(_OpenBlock):
    length: int = 0
    citations: list[Raw] = []


class _ThinkingBlock(_OpenBlock):
    pieces: TextPieces = field(default_factory=TextPieces)
    signatures: TextPieces = field(default_factory=TextPieces)
    redacted: str | None = None


class _CallBlock(_OpenBlock, kw_only=True):
    initial_input: str
    freeform_input: FreeformInput | None
    has_arguments: bool = False


class _NativeBlock(_OpenBlock, kw_only=True):
    kind: str
    members: dict[str, Any]
    pieces: TextPieces = field(default_factory=TextPieces)


_Block = _TextBlock | _ThinkingBlock | _CallBlock | _NativeBlock
_AnyBlock = TypeVar("_AnyBlock", _TextBlock, _ThinkingBlock)


class _RawDelta(Struct, frozen=True):
    """An event with a delta of an unknown kind."""

    delta: dict[str, Raw]


def _decode_or_none(raw: bytes | Raw) -> Any:
    """Decode any JSON; None if it holds a value that cannot be represented."""
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        return None


def _compact_json(raw: Raw) -> str:
    """JSON without white space; `{}` for null."""
    text = msgspec.json.format(bytes(raw), indent=-1).decode()
    return "{}" if text == "null" else text


#: Members of a call that go back with it.
RETURNED_CALL_MEMBERS: Final = frozenset({"caller", "toolset_name"})
DEFAULT_VALUES: Final = (None, {"type": "direct"})
_decode_block: Final = msgspec.json.Decoder(AnswerBlockIn).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raw_delta: Final = msgspec.json.Decoder(_RawDelta).decode
