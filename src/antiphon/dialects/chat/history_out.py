"""Translates hub items into chat messages that the server accepts (E-2, E-5).

`dialects/common/history` orders the turns; this module writes them. A plain conversation takes a fast path, which
writes the same messages; a test compares the two. Item ids and statuses are dropped without a report, because only the
hub uses them.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from antiphon.dialects.chat.content_out import ContentFromHub, text_or_parts
from antiphon.dialects.chat.reasoning import client_details, own_envelope
from antiphon.dialects.chat.wire import (
    DEVELOPER_FIELD,
    PARTS_FIELD,
    AnyPartOut,
    ChatWire,
    CustomOut,
    FunctionOut,
    MessageOut,
    PartOut,
    ToolCallOut,
)
from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.cache_marks import has_cache_marks, output_as_parts
from antiphon.dialects.common.call_ids import shorten_call_id
from antiphon.dialects.common.history import (
    AnsweredCall,
    AssistantTurn,
    HistoryTurn,
    MessageLosses,
    PlacedItem,
    ToolCallParam,
    ToolOutputParam,
    build_history,
    report_other_items,
)
from antiphon.dialects.common.plain_history import make_plain_turns, plain_text
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.dialects.common.tool_names import ToolNames, key_of_call
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.content import Refusal, UnknownContent
from antiphon.protocol.items import FunctionCallParam, ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


def history_from_hub(
    request: Request, names: ToolNames, wire: ChatWire, losses: Losses, leading_system_texts: list[str]
) -> list[MessageOut]:
    """Return all messages. `leading_system_texts` become the first system message."""
    items = input_items(request)
    plain = plain_messages(items, names, wire)
    if plain is None:
        return general_history_from_hub(items, names, wire, losses, leading_system_texts)
    return (
        [MessageOut(role="system", content="\n\n".join(leading_system_texts)), *plain]
        if leading_system_texts
        else plain
    )


def general_history_from_hub(
    items: list[ItemParam], names: ToolNames, wire: ChatWire, losses: Losses, leading_system_texts: list[str]
) -> list[MessageOut]:
    """Return the messages of any conversation, in any order of items."""
    history = build_history(items, losses, wire.orphan_outputs)
    uses_parts = wire.cache_marks != "none" and has_cache_marks(items)
    messages = _MessageWriter(names, wire, losses, leading_system_texts, uses_parts=uses_parts)
    first_wanted_turn = _first_turn_with_wanted_reasoning(history.turns, wire)
    for index, turn in enumerate(history.turns):
        if type(turn) is AssistantTurn:
            messages.add_assistant(turn, wants_reasoning=index >= first_wanted_turn)
        else:
            messages.add_message(turn)
    report_other_items(history.others, losses)
    return messages.finish()


def plain_messages(items: list[ItemParam], names: ToolNames, wire: ChatWire) -> list[MessageOut] | None:
    """Return the messages, or None if the conversation is not plain or the server needs another form."""
    if wire.text_content != "string" or wire.empty_content != "null":
        return None
    if wire.missing_reasoning == "blank" and FunctionCallParam in map(type, items):
        return None  # every call needs reasoning, which only `general_history_from_hub` adds

    def make_calls(text: str | None, calls: list[FunctionCallParam], outputs: list[str]) -> list[MessageOut]:
        wire_calls = [_plain_tool_call(call, names) for call in calls]
        return [
            MessageOut("assistant", text, tool_calls=wire_calls),
            *(
                MessageOut("tool", output, tool_call_id=call.id)
                for call, output in zip(wire_calls, outputs, strict=True)
            ),
        ]

    return make_plain_turns(items, MessageOut, make_calls)


def _first_turn_with_wanted_reasoning(turns: list[HistoryTurn], wire: ChatWire) -> int:
    """Return the index of the first turn whose reasoning the server wants back: 0, or that of the last user turn."""
    if wire.reasoning_field == "none":
        return len(turns)
    if wire.reasoning_history == "all":
        return 0
    user_turns = [
        index for index, turn in enumerate(turns) if isinstance(turn, PlacedItem) and turn.item.role == "user"
    ]
    return user_turns[-1] if user_turns else 0


class _MessageWriter:
    """Writes messages, turn by turn."""

    def __init__(
        self,
        names: ToolNames,
        wire: ChatWire,
        losses: Losses,
        leading_system_texts: list[str],
        *,
        uses_parts: bool,
    ) -> None:
        self._names = names
        self._uses_parts = uses_parts  # also for texts, because some have cache marks
        self._wire = wire
        self._losses = losses
        self._content = ContentFromHub(wire, losses)
        self._system_texts = list(leading_system_texts)
        self._messages: list[MessageOut] = []
        self._message_losses = MessageLosses(losses)

    def finish(self) -> list[MessageOut]:
        if not self._system_texts:
            return self._messages
        return [MessageOut(role="system", content="\n\n".join(self._system_texts)), *self._messages]

    def add_message(self, turn: PlacedItem[MessageParam]) -> None:
        message = turn.item
        self._message_losses.report_fields(turn)
        if message.role == "user":
            self._messages.append(MessageOut(role="user", content=self._user_content(turn)))
            return
        if self._wire.system == "anywhere" and self._uses_parts:
            parts = self._content.text_parts(message.content, turn.path, "content", turn.first_part)
            self._messages.append(MessageOut(role=self._system_role(message), content=parts))
            return
        text = "\n".join(self._content.texts(message.content, turn.path, "content", turn.first_part))
        if not text:
            return
        if self._wire.system == "anywhere":
            self._messages.append(MessageOut(role=self._system_role(message), content=text))
            return
        if self._messages:
            self._losses.add(
                turn.path, "the position of a system message", "it is moved to the start, the only allowed position"
            )
        self._system_texts.append(text)

    def _system_role(self, message: MessageParam) -> Literal["system", "developer"]:
        if message.role == "system":
            return "system"
        if self._wire.developer == "kept":
            return "developer" if DEVELOPER_FIELD in (message.extra or {}) else "system"
        return self._wire.developer

    def add_assistant(self, turn: AssistantTurn, *, wants_reasoning: bool) -> None:
        parts = self._native_parts(turn.messages) if self._wire.native_types else None
        text, refusal = self._text_and_refusal(turn.messages) if parts is None else ("", UNSET)
        is_silent = not text and not parts and not turn.calls
        reasoning, details = (
            self._reasoning_fields(turn.reasoning, is_wanted=wants_reasoning, is_silent=is_silent)
            if turn.reasoning
            else NO_REASONING
        )
        if is_silent:
            return  # servers refuse an empty turn
        if turn.calls and reasoning is UNSET and wants_reasoning and self._wire.missing_reasoning == "blank":
            reasoning = " "
        self._messages.append(
            MessageOut(
                role="assistant",
                content=parts or text or EMPTY_CONTENT[self._wire.empty_content],
                tool_calls=[self._tool_call(answered.call.item) for answered in turn.calls] if turn.calls else UNSET,
                refusal=refusal,
                reasoning_content=reasoning if self._wire.reasoning_field == "reasoning_content" else UNSET,
                reasoning=reasoning if self._wire.reasoning_field == "reasoning" else UNSET,
                reasoning_details=details,
            )
        )
        if turn.calls:
            self._add_results(turn.calls)

    def _user_content(self, turn: PlacedItem[MessageParam]) -> str | list[AnyPartOut]:
        uses_parts = self._uses_parts or self._wire.text_content == "parts"
        text = None if uses_parts else plain_text(turn.item.content)
        if text is not None:
            return text
        parts = self._content.parts(turn.item.content or "", turn.path, "content", turn.first_part)
        return parts if uses_parts or PARTS_FIELD in (turn.item.extra or {}) else text_or_parts(parts)

    def _native_parts(self, messages: list[PlacedItem[MessageParam]]) -> list[AnyPartOut] | None:
        """The parts of an assistant turn that has parts of other types than texts and refusals; None if it has none."""
        if not any(isinstance(part, UnknownContent) for message in messages for part in message.item.content):
            return None
        return [
            part
            for message in messages
            for part in self._content.parts(message.item.content, message.path, "content", message.first_part)
        ]

    def _text_and_refusal(self, messages: list[PlacedItem[MessageParam]]) -> tuple[str, str | UnsetType]:
        """The text and the refusal of an assistant turn."""
        texts: list[str] = []
        refusals: list[str] = []
        for message in messages:
            self._message_losses.report_fields(message)
            content = message.item.content
            text = plain_text(content)
            if text is not None:
                texts.append(text)
                continue
            for index, text in enumerate(self._content.texts(content, message.path, "content", message.first_part)):
                (refusals if type(content[index]) is Refusal else texts).append(text)
        if not refusals:
            return "\n".join(texts), UNSET
        # A server without `refusal` still needs content, and the model should see that it refused.
        return "\n".join(texts) or "\n".join(refusals), "\n".join(refusals)

    def _reasoning_fields(
        self, items: list[PlacedItem[ReasoningParam]], *, is_wanted: bool, is_silent: bool
    ) -> tuple[str | UnsetType, list[Any] | UnsetType]:
        """Return the reasoning for the server: the text if it is wanted, and its own details always (RSN-2)."""
        texts: list[str] = []
        details: list[Any] = []
        for placed in items:
            path, item = placed.path, placed.item
            report_unknown_fields(item, path, self._losses)
            envelope = own_envelope(item, self._wire.maker)
            content, summary = item.content or [], item.summary
            if item.encrypted_content and envelope is None:
                self._losses.add(
                    path, "earlier reasoning", "another server made it, and only that server accepts it"
                )  # RSN-3
                continue
            sealed = envelope.content if envelope is not None else {}
            own_details, own_text = sealed.get("reasoning_details"), sealed.get("reasoning_content")
            returned_details = own_details if isinstance(own_details, list) else client_details(item)
            if returned_details and not is_silent:
                details += returned_details
            elif (content or summary or sealed) and (is_silent or not is_wanted):
                self._losses.add(path, "earlier reasoning", "the server does not support it")
            if is_wanted and not is_silent:
                texts += [own_text] if isinstance(own_text, str) else self._readable_reasoning(item, path)
        return "\n".join(texts) or UNSET, details or UNSET

    def _readable_reasoning(self, item: ReasoningParam, path: str) -> list[str]:
        if item.content and item.summary:
            self._losses.add(f"{path}.summary", "the summary of earlier reasoning", "the reasoning itself is sent")
        return self._content.texts(item.content or [], path, "content") or self._content.texts(
            item.summary, path, "summary"
        )

    def _tool_call(self, call: ToolCallParam) -> ToolCallOut:
        name = self._names.wire_name(key_of_call(call))
        call_id = shorten_call_id(call.call_id)
        if isinstance(call, FunctionCallParam):
            # Models that call a function without parameters may write nothing at all; servers want JSON.
            return ToolCallOut(id=call_id, function=FunctionOut(name=name, arguments=call.arguments or "{}"))
        if self._wire.custom_tools == "native":
            return ToolCallOut(id=call_id, type="custom", custom=CustomOut(name=name, input=call.input))
        return ToolCallOut(id=call_id, function=FunctionOut(name=name, arguments=freeform_tools.wrap_input(call.input)))

    def _add_results(self, calls: list[AnsweredCall]) -> None:
        lifted_parts: list[AnyPartOut] = []
        for answered in calls:
            call_id = shorten_call_id(answered.call.item.call_id)
            report_unknown_fields(answered.call.item, answered.call.path, self._losses)
            content = self._result_content(answered.output, call_id, lifted_parts)
            self._messages.append(MessageOut(role="tool", tool_call_id=call_id, content=content))
        if lifted_parts:
            self._messages.append(MessageOut(role="user", content=lifted_parts))

    def _result_content(
        self, output: PlacedItem[ToolOutputParam], call_id: str, lifted_parts: list[AnyPartOut]
    ) -> str | list[AnyPartOut]:
        item = mark_failure_in_text(output.item)
        if self._uses_parts:
            item = output_as_parts(item)
        report_unknown_fields(item, output.path, self._losses)
        if isinstance(item.output, str):
            return item.output
        parts = self._content.parts(item.output, output.path, "output")
        if self._wire.tool_images == "lift":
            parts = _lift_media(parts, call_id, lifted_parts)
        return parts if self._uses_parts else text_or_parts(parts)


def _lift_media(parts: list[AnyPartOut], call_id: str, lifted_parts: list[AnyPartOut]) -> list[AnyPartOut]:
    """TOOL-6: move media out of a tool message into `lifted_parts`, labelled with the call. A note replaces each."""
    remaining_parts: list[AnyPartOut] = []
    count = 0
    for part in parts:
        type_of_part = part.type if isinstance(part, PartOut) else "file"
        if type_of_part == "text":
            remaining_parts.append(part)
            continue
        count += 1
        kind = "image" if type_of_part == "image_url" else "file"
        remaining_parts.append(PartOut(type="text", text=f"[{kind} {count} of this result follows below]"))
        lifted_parts += [
            PartOut(type="text", text=f"{kind.capitalize()} {count} of the result of call {call_id}:"),
            part,
        ]
    return remaining_parts


def _plain_tool_call(call: FunctionCallParam, names: ToolNames) -> ToolCallOut:
    # Models that call a function without parameters may write no arguments at all; servers want JSON.
    arguments = call.arguments or "{}"
    name = names.wire_name(("function", call.name, None))
    return ToolCallOut(id=shorten_call_id(call.call_id), function=FunctionOut(name=name, arguments=arguments))


NO_REASONING: Final[tuple[UnsetType, UnsetType]] = (UNSET, UNSET)
EMPTY_CONTENT: Final[dict[str, str | None | UnsetType]] = {"null": None, "empty": "", "absent": UNSET}
