"""Translates an editor's messages into hub items, in their order (A-1 … A-5), and finds the system prompt (A-6, C-1).

Calls, results and thinking become separate items. The role sets the content type (C-2). Unknown parts, and parts that
the hub cannot hold, are reported as losses. Current editors send the system prompt with the system role. Older ones
send it as the first assistant message, which may also be a real turn. Such a message counts as the prompt only if no
message has the system role, it has only text, a user turn follows, and it starts like a prompt. A client can override
this with `choices.leadingAssistant`.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from msgspec import UNSET

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, NO_CACHE_MARKS, with_mark
from antiphon.dialects.common.history import InstructionsAndItems
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.vscode.content_in import (
    assistant_data_to_text,
    cache_marker,
    data_form,
    part_kind,
    require_member,
    result_to_hub,
    user_data_to_hub,
)
from antiphon.dialects.vscode.leading_prompt import is_system_prompt
from antiphon.dialects.vscode.wire import ContentChoicesIn, MessageIn, PartIn
from antiphon.protocol import codec
from antiphon.protocol.content import InputText, OutputTextParam, ReasoningText
from antiphon.protocol.items import FunctionCallParam, ItemParam, MessageParam, MessageRole, ReasoningParam
from antiphon.protocol.losses import Losses


def history_to_hub(messages: list[MessageIn], choices: ContentChoicesIn, losses: Losses) -> InstructionsAndItems:
    """A-6: the system prompt becomes `instructions`; later system messages keep their position."""
    prompts = system_prompts(messages, choices)
    split_items: list[ItemParam] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        report_unknown_fields(message, path, losses)
        if message.name:
            losses.add(f"{path}.name", f"the name {message.name!r}", "Open Responses has no equivalent")
        if index < len(prompts):
            _report_marks(message, path, losses)
        else:
            split_items += _MessageSplitter(message, path, choices, losses).split_items()
    return InstructionsAndItems("\n\n".join(prompts) or UNSET, split_items)


def system_prompts(messages: list[MessageIn], choices: ContentChoicesIn) -> list[str]:
    """Return the texts of the leading messages that are the system prompt, one for each message."""
    if any(message.role == SYSTEM for message in messages):
        return _leading_system_texts(messages)
    first = text_if_only_text(messages[0]) if messages[0].role == ASSISTANT else None
    if first is None or choices.leading_assistant == "turn":
        return []
    if choices.leading_assistant == "system" or (_has_user_turn_second(messages) and is_system_prompt(first)):
        return [first]
    return []


def text_if_only_text(message: MessageIn) -> str | None:
    """Return the text of a message that has only text, else None. Marks of the editor are ignored."""
    if isinstance(message.content, str):
        return message.content or None
    texts: list[str] = []
    for part in message.content:
        if isinstance(part, str):
            texts.append(part)
        elif part_kind(part) == "text":
            texts.append(str(part.value))
        elif part_kind(part) != "data" or "/" in str(part.mime_type):
            return None
    return "".join(texts) or None


class _MessageSplitter:
    """Splits one message into items."""

    def __init__(self, message: MessageIn, path: str, choices: ContentChoicesIn, losses: Losses) -> None:
        self._message = message
        self._path = path
        self._choices = choices
        self._losses = losses
        self._role = self._role_of(message.role)
        self._items: list[ItemParam] = []
        self._parts: list[Any] = []  # content parts since the last item
        self._thinking_id: str | None = None  # id of the last item, if it is thinking that may continue

    def split_items(self) -> list[ItemParam]:
        content = self._message.content
        if isinstance(content, str):
            return [MessageParam(role=self._role, content=content)]
        for index, part in enumerate(content):
            if isinstance(part, str):
                self._add_text(part)
            else:
                self._add_part(part, f"{self._path}.content[{index}]")
        self._end_message()
        return self._items

    def _role_of(self, role: Any) -> MessageRole:
        """A-1: an unknown role becomes the user."""
        hub_role = ROLES.get(role) if isinstance(role, int) else None
        if hub_role is None:
            self._losses.add(f"{self._path}.role", f"the role {role!r}", "it is unknown; 'user' is used")
        return hub_role or "user"

    def _add_part(self, part: PartIn, path: str) -> None:
        kind = part_kind(part)
        if kind is None:
            self._losses.add(path, "a part of an unknown kind", "expected text, data, a call, a result or thinking")
            return
        report_unknown_fields(part, path, self._losses)
        match kind:
            case "text":
                self._add_text(self._text_of(part, path))
            case "data":
                self._add_data(part, path)
            case "thinking":
                self._add_thinking(part)
            case "tool_call":
                self._add_item(self._call_to_hub(part, path))
            case "tool_result":
                self._add_item(result_to_hub(part, path, self._choices, self._losses))
            case _ as never:
                assert_never(never)

    def _text_of(self, part: PartIn, path: str) -> str:
        """Return the text of a part. A value that is no string becomes JSON."""
        value = require_member(part.value, f"{path}.value")
        return value if isinstance(value, str) else codec.encode(value).decode()

    def _add_text(self, text: str) -> None:
        """A-2, C-2: add a text part."""
        self._thinking_id = None
        if text:
            self._parts.append(OutputTextParam(text=text) if self._role == "assistant" else InputText(text=text))

    def _add_data(self, part: PartIn, path: str) -> None:
        if data_form(require_member(part.mime_type, f"{path}.mimeType")) == "mark":
            self._apply_mark(part, path)
        elif self._role == "assistant":
            self._add_text(assistant_data_to_text(part, path, self._losses))
        else:
            self._thinking_id = None
            self._parts.append(user_data_to_hub(part, path, self._choices, self._losses))

    def _apply_mark(self, part: PartIn, path: str) -> None:
        """Apply a mark to the part or item before it."""
        mark = cache_marker(part, path)
        if mark is None:
            self._losses.add(path, f"the mark {part.mime_type!r}", "only the editor uses it")
            return
        marked: list[Any] = self._parts or self._items
        if not marked or isinstance(marked[-1], ReasoningParam):
            self._losses.add(path, "a cache mark", "there is no part before it")
            return
        marked[-1] = with_mark(marked[-1], mark)

    def _call_to_hub(self, part: PartIn, path: str) -> FunctionCallParam:
        """A-4: translate a call. The editor's input is an object; the hub's is JSON text."""
        return FunctionCallParam(
            call_id=require_member(part.call_id, f"{path}.callId"),
            name=require_member(part.name, f"{path}.name"),
            arguments=codec.encode(part.input or {}).decode(),
        )

    def _add_thinking(self, part: PartIn) -> None:
        """RSN-2: join the pieces of thinking with the same id. Any piece may have the signature."""
        pieces = part.value if isinstance(part.value, list) else [part.value]
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        signature = (part.metadata or {}).get("signature")
        sealed = signature if isinstance(signature, str) else ""
        if not text and not sealed:
            return
        id = part.id or ""
        last = self._items[-1] if self._items and self._thinking_id == id else None
        if not isinstance(last, ReasoningParam):
            self._add_item(_reasoning_item(text, sealed))
        else:
            self._items[-1] = _reasoning_item(_reasoning_text(last) + text, (last.encrypted_content or "") + sealed)
        self._thinking_id = id

    def _add_item(self, item: ItemParam) -> None:
        self._end_message()
        self._items.append(item)
        self._thinking_id = None

    def _end_message(self) -> None:
        if self._parts:
            self._items.append(MessageParam(role=self._role, content=self._parts))
            self._parts = []


def _reasoning_item(text: str, sealed: str) -> ReasoningParam:
    content: Any = [ReasoningText(text=text)] if text else UNSET
    return ReasoningParam(summary=[], content=content, encrypted_content=sealed or UNSET)


def _reasoning_text(item: ReasoningParam) -> str:
    return "".join(part.text for part in item.content or () if isinstance(part, ReasoningText))


def _report_marks(message: MessageIn, path: str, losses: Losses) -> None:
    """E-4: report marks in the system prompt, because instructions are plain text."""
    if isinstance(message.content, str):
        return
    for index, part in enumerate(message.content):
        if isinstance(part, PartIn) and part_kind(part) == "data":
            why = NO_CACHE_MARKS if part.mime_type == CACHE_CONTROL else "only the editor uses it"
            losses.add(f"{path}.content[{index}]", f"the mark {part.mime_type!r}", why)


USER, ASSISTANT, SYSTEM = 1, 2, 3


def _leading_system_texts(messages: list[MessageIn]) -> list[str]:
    prompts: list[str] = []
    for message in messages:
        text = text_if_only_text(message) if message.role == SYSTEM else None
        if text is None:
            break
        prompts.append(text)
    return prompts


def _has_user_turn_second(messages: list[MessageIn]) -> bool:
    return len(messages) > 1 and messages[1].role == USER


ROLES: Final[dict[int, MessageRole]] = {USER: "user", ASSISTANT: "assistant", SYSTEM: "system"}
