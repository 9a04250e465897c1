"""Writes the hub's conversation as messages: user and assistant alternate, results directly after their calls.

`dialects/common/history` builds the turns; this module writes each one. Within an assistant turn calls come last; other
blocks keep their order, because servers check the position of their thoughts. A plain conversation takes a fast path,
which writes the same messages; a test compares the two. Item ids and statuses have no equivalent and are not reported:
they belong to the hub.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.call_arguments import arguments_as_object, arguments_or_wrapper
from antiphon.dialects.common.call_ids import mark_call_id
from antiphon.dialects.common.empty_conversation import (
    ends_with_user_message,
    has_user_message,
    text_for_empty_conversation,
)
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.history import (
    AnsweredCall,
    AssistantTurn,
    MessageLosses,
    PlacedItem,
    ToolCallParam,
    build_history,
    report_other_items,
)
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.plain_history import PlainCalls, plain_history
from antiphon.dialects.common.tool_errors import IS_ERROR, is_failed, tool_error_text, without_error_mark
from antiphon.dialects.common.tool_names import ToolNames, key_of_call
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.content_out import ContentFromHub, block_text, block_to_dict, replace_text
from antiphon.dialects.messages.wire import (
    PREFIX,
    SYSTEM_FIELD,
    Block,
    MessageOut,
    MessagesWire,
    RedactedThinkingBlock,
    Role,
    SystemMessageOut,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    block_from_item,
)
from antiphon.protocol.content import UnknownContent
from antiphon.protocol.items import (
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class SystemAndMessages(NamedTuple):
    system: list[Block]
    messages: list[MessageOut]
    #: Whether cache marks came from a client of an API whose rules differ.
    has_breakpoints: bool = False

    @property
    def ends_with_assistant(self) -> bool:
        """Whether the last message is the assistant's, which the answer then continues."""
        return self.messages[-1].role == "assistant"

    @property
    def has_tool_loop_without_thinking(self) -> bool:
        """Whether the assistant's turn after the last user message starts without thoughts."""
        user_indexes = [
            index for index, message in enumerate(self.messages) if message.role == "user" and not _has_results(message)
        ]
        assistant_messages = [message for message in self.messages[user_indexes[-1] :] if message.role == "assistant"]
        return bool(assistant_messages) and not isinstance(assistant_messages[0].content[0], THOUGHT_TYPES)


def history_from_hub(
    request: Request, names: ToolNames, wire: MessagesWire, losses: Losses, leading_system_texts: list[str]
) -> SystemAndMessages:
    """The messages of the conversation; `leading_system_texts` start the system text."""
    items = input_items(request)
    plain = plain_messages(items, names)
    if plain is not None:
        return SystemAndMessages([TextBlock(text=text) for text in leading_system_texts if text.strip()], plain)
    cache_ttl = request.prompt_cache_options.ttl if request.prompt_cache_options else UNSET
    return general_history_from_hub(items, names, wire, losses, leading_system_texts, cache_ttl)


def general_history_from_hub(
    items: list[ItemParam],
    names: ToolNames,
    wire: MessagesWire,
    losses: Losses,
    leading_system_texts: list[str],
    cache_ttl: str | None | UnsetType = UNSET,
) -> SystemAndMessages:
    """Like `history_from_hub`, for any conversation: the items are put in order first."""
    history = build_history([_as_message_item(item) for item in items], losses, wire.orphan_outputs)
    messages = _MessageWriter(names, wire, losses, leading_system_texts, cache_ttl)
    for turn in history.turns:
        if type(turn) is AssistantTurn:
            messages.add_assistant(turn)
        else:
            messages.add_message(turn)
    report_other_items(history.others, losses)
    return messages.finish(items)


def plain_messages(items: list[ItemParam], names: ToolNames) -> list[MessageOut] | None:
    """The messages of a plain conversation; None if it is not plain or cannot be sent unchanged."""
    turns = plain_history(items)
    if turns is None:
        return None
    messages: list[MessageOut] = []
    for turn in turns:
        if type(turn) is PlainCalls:
            assistant_blocks: list[Block] = [TextBlock(text=turn.text)] if turn.text else []
            results: list[Block] = []
            for call, output in zip(turn.calls, turn.outputs, strict=True):
                arguments = arguments_as_object(call.arguments)
                if arguments is None or VALID_CALL_ID.fullmatch(call.call_id) is None:
                    return None
                assistant_blocks.append(
                    ToolUseBlock(id=call.call_id, name=names.wire_name(("function", call.name, None)), input=arguments)
                )
                results.append(ToolResultBlock(tool_use_id=call.call_id, content=output or UNSET))
            messages.append(MessageOut(role="assistant", content=assistant_blocks))
            messages.append(MessageOut(role="user", content=results))
            continue
        text = turn.text
        if turn.role == "assistant":
            messages.append(MessageOut(role="assistant", content=[TextBlock(text=text)]))
        elif messages and messages[-1].role == "user":  # results, which the user's text follows
            messages[-1].content.append(TextBlock(text=text))
        else:
            messages.append(MessageOut(role="user", content=[TextBlock(text=text)]))
    return messages


def outgoing_call_id(call_id: str) -> str:
    """The wire id of a call: servers accept letters, digits, `_` and `-`."""
    return (
        call_id if VALID_CALL_ID.fullmatch(call_id) else mark_call_id(INVALID_ID_CHARACTERS.sub("_", call_id), call_id)
    )


def _as_message_item(item: ItemParam) -> ItemParam:
    """An item that holds a block of this dialect, as an assistant message."""
    block = block_from_item(item) if isinstance(item, UnknownItem) else None
    return (
        item
        if block is None
        else MessageParam(role="assistant", content=[UnknownContent(kind=type_of(item), raw=block)])
    )


class _MessageWriter:
    """Collects messages, turn by turn."""

    def __init__(
        self,
        names: ToolNames,
        wire: MessagesWire,
        losses: Losses,
        leading_system_texts: list[str],
        cache_ttl: str | None | UnsetType,
    ) -> None:
        self._names = names
        self._wire = wire
        self._losses = losses
        self._content = ContentFromHub(wire, losses, cache_ttl)
        self._system: list[Block] = [TextBlock(text=text) for text in leading_system_texts if text.strip()]
        self._messages: list[MessageOut] = []
        self._pending_system: list[Block] = []  # until a system message is allowed
        self._pending_thoughts: dict[str, Block] = {}  # by path: thoughts without a block after them
        self._used_ids: set[str] = set()
        self._wire_ids: dict[str, str] = {}  # the last wire id of each call id
        self._message_losses = MessageLosses(losses)

    def finish(self, items: list[ItemParam]) -> SystemAndMessages:
        self._drop_thoughts()
        self._flush_system()
        is_empty = not self._messages and (not self._system or has_user_message(items))
        if is_empty or (self._messages and self._messages[-1].role == "assistant" and ends_with_user_message(items)):
            text = text_for_empty_conversation(items, self._losses)
            self._messages.append(MessageOut(role="user", content=[TextBlock(text=text)]))
        if not self._messages or self._messages[0].role != "user":
            self._losses.add(
                "input", "the start of the conversation", "the API requires a user message first; one is added"
            )
            self._messages.insert(0, MessageOut(role="user", content=[TextBlock(text=EARLIER_MESSAGES_OMITTED)]))
        last = self._messages[-1]
        text = block_text(last.content[-1]) if last.content else ""
        if last.role == "assistant" and text != text.rstrip():
            self._losses.add("input", "white space at the end of the last assistant message", "the server refuses it")
            last.content[-1] = replace_text(last.content[-1], text.rstrip())
        return SystemAndMessages(self._system, self._messages, self._content.has_breakpoints)

    def add_message(self, turn: PlacedItem[MessageParam]) -> None:
        message = turn.item
        self._drop_thoughts()
        if SYSTEM_FIELD in (message.extra or {}) and self._messages and self._wire.system in ("inline", "kept"):
            self._keep_system(turn)
            return
        self._message_losses.report_fields(turn)
        if message.role == "user":
            self._add_blocks("user", self._content.blocks(message.content, turn.path, "content", turn.first_part))
            if self._pending_system:
                self._losses.add(turn.path, "the position of a system message", "it is moved after the user message")
            return
        texts = self._content.texts(message.content, turn.path, "content", turn.first_part)
        if not self._messages:
            self._system += texts
        elif self._wire.system == "inline":
            self._pending_system += texts
        elif self._wire.system == "top":
            self._losses.add(
                turn.path, "the position of a system message", "it is moved to the start, the only allowed position"
            )
            self._system += texts
        else:
            self._mark_as_system(texts, turn.path)

    def add_assistant(self, turn: AssistantTurn) -> None:
        blocks = {**self._pending_thoughts, **self._turn_blocks(turn)}
        self._pending_thoughts = {}
        while blocks and isinstance(
            next(reversed(blocks.values())), THOUGHT_TYPES
        ):  # servers refuse thoughts at the end of a turn
            path, thought = blocks.popitem()
            self._pending_thoughts = {path: thought, **self._pending_thoughts}
        if blocks:  # else no assistant message follows, and a system message is not allowed
            self._flush_system()
        self._add_blocks(
            "assistant", sorted(blocks.values(), key=_is_call)
        )  # a block after a call would separate it from its result
        if turn.calls:
            self._drop_thoughts()
            self._add_blocks("user", [self._tool_result_block(answered) for answered in turn.calls])

    def _add_blocks(self, role: Role, blocks: list[Block]) -> None:
        """Add blocks for a role. Blocks of the same role are joined."""
        if not blocks:
            return
        if self._messages and self._messages[-1].role == role:
            self._messages[-1].content.extend(blocks)
        else:
            self._messages.append(MessageOut(role=role, content=blocks))

    # System

    def _keep_system(self, turn: PlacedItem[MessageParam]) -> None:
        """Add a system message of a client of this dialect in its place."""
        self._flush_system()
        blocks = self._content.blocks(turn.item.content, turn.path, "content", turn.first_part)
        extra = turn.item.extra or {}
        members = {name.removeprefix(PREFIX): raw for name, raw in extra.items() if name != SYSTEM_FIELD}
        self._messages.append(SystemMessageOut(role="system", content=blocks, members=members))

    def _flush_system(self) -> None:
        """Add the pending system texts: a system message after a user message, else a marked user text."""
        pending, self._pending_system = self._pending_system, []
        if pending and self._messages[-1].role == "user":
            self._messages.append(MessageOut(role="system", content=pending))
        elif pending:
            self._mark_as_system(pending, "input")

    def _mark_as_system(self, texts: list[Block], path: str) -> None:
        if texts:
            self._losses.add(path, "the system role of a message", "it is sent as user text with a mark")
            self._add_blocks("user", [replace_text(text, SYSTEM_MARK.format(block_text(text))) for text in texts])

    # The assistant

    def _turn_blocks(self, turn: AssistantTurn) -> dict[str, Block]:
        """The thoughts, texts and calls of a turn, in their order, by path."""
        placed_blocks: list[tuple[tuple[int, int], str, Block]] = []
        for thought in turn.reasoning:
            block = self._thinking_block(thought)
            if block is not None:
                placed_blocks.append((_position(thought), thought.path, block))
        for message in turn.messages:
            self._message_losses.report_fields(message)
            texts = self._content.texts(message.item.content, message.path, "content", message.first_part)
            placed_blocks += [
                (_position(message), f"{message.path}#{message.first_part + index}", text)
                for index, text in enumerate(texts)
            ]
        placed_blocks += [
            (_position(answered.call), answered.call.path, self._tool_use_block(answered.call))
            for answered in turn.calls
        ]
        return {path: block for _, path, block in sorted(placed_blocks, key=lambda entry: entry[0])}

    def _thinking_block(self, placed: PlacedItem[ReasoningParam]) -> Block | None:
        """RSN-2, RSN-3: unseal reasoning that this server made. Other reasoning is a loss."""
        path, item = placed.path, placed.item
        report_unknown_fields(item, path, self._losses)
        envelope = unseal_reasoning(item.encrypted_content)
        if envelope is None:
            why = (
                "the server accepts only reasoning that it signed itself"
                if not item.encrypted_content
                else "another server sealed it"
            )
        elif not envelope.is_for(self._wire.maker, "messages"):
            why = f"{envelope.maker} made it, and only its servers accept it"
        else:
            match envelope.content:
                case {"thinking": str(thinking), "signature": str(signature)} if (
                    signature or self._wire.unsigned_thinking
                ):
                    return ThinkingBlock(thinking=thinking, signature=signature)
                case {"redacted": str(data)}:
                    return RedactedThinkingBlock(data=data)
            why = "it is sealed in an unknown form"
        self._losses.add(path, "earlier reasoning", why)
        return None

    def _drop_thoughts(self) -> None:
        for path in self._pending_thoughts:
            self._losses.add(path, "earlier reasoning", "no text or call follows it")
        self._pending_thoughts = {}

    # Calls and results

    def _tool_use_block(self, placed: PlacedItem[ToolCallParam]) -> Block:
        call = placed.item
        if isinstance(call, FunctionCallParam):
            arguments = arguments_or_wrapper(call.arguments, placed.path, self._losses)
        else:
            arguments = Raw(freeform_tools.wrap_input(call.input).encode())
        name = self._names.wire_name(key_of_call(call))
        block = ToolUseBlock(id=self._assign_wire_id(call.call_id), name=name, input=arguments)
        return self._content.with_fields(block, call, placed.path, CALL_FIELDS)

    def _assign_wire_id(self, call_id: str) -> str:
        """A new wire id for a call: its own if possible. Ids are unique in the conversation."""
        wire_id, mark = outgoing_call_id(call_id), call_id
        while wire_id in self._used_ids:
            mark += "'"
            wire_id = mark_call_id(wire_id, mark)
        self._used_ids.add(wire_id)
        self._wire_ids[call_id] = wire_id
        return wire_id

    def _tool_result_block(self, answered: AnsweredCall) -> Block:
        path, output = answered.output.path, answered.output.item
        output_value = output.output
        content = output_value if isinstance(output_value, str) else self._content.blocks(output_value, path, "output")
        if is_failed(output):
            if not content or (isinstance(content, str) and not content.strip()):
                content = tool_error_text("")  # servers refuse an error without text
            elif isinstance(content, list) and not all(map(block_text, content)):  # and an error with other content
                output, content = without_error_mark(output), _mark_failure(content)
        block = ToolResultBlock(tool_use_id=self._wire_ids[answered.call.item.call_id], content=content or UNSET)
        return self._content.with_fields(block, output, path, RESULT_FIELDS)


def _mark_failure(blocks: list[Block]) -> list[Block]:
    """The output of a failed tool, with a text that says so."""
    for index, block in enumerate(blocks):
        if text := block_text(block):
            return [*blocks[:index], replace_text(block, tool_error_text(text)), *blocks[index + 1 :]]
    return [TextBlock(text=tool_error_text("")), *blocks]


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolUseBlock) or (isinstance(block, dict) and block["type"] == "tool_use")


def _position(placed: PlacedItem[Any]) -> tuple[int, int]:
    """The position of an item in the input, and of its part in the message."""
    match = POSITION.match(placed.path)
    assert match
    return int(match[1]), int(match[2] or placed.first_part)


def _has_results(message: MessageOut) -> bool:
    first = message.content[0]
    return not isinstance(first, Raw) and block_to_dict(first)["type"] == "tool_result"


THOUGHT_TYPES: Final = (ThinkingBlock, RedactedThinkingBlock)
CALL_FIELDS: Final = frozenset({"cache_control", "caller", "toolset_name"})
RESULT_FIELDS: Final = frozenset({"cache_control", IS_ERROR, "toolset_name"})
EARLIER_MESSAGES_OMITTED: Final = "[earlier messages omitted]"
SYSTEM_MARK: Final = "<system>\n{}\n</system>"
INVALID_ID_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")
POSITION: Final = re.compile(r"input\[(\d+)\](?:\.content\[(\d+)\])?")
VALID_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
