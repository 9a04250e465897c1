"""An editor's messages as hub items, in their order: what was said together, and calls, results and thoughts apart (A-1 … A-5).

Content types follow from the role (C-2). What the hub has no place for, and what nobody knows, is reported.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, assert_never

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.unknown_fields import LOSS_REASONS, report_unknown_fields
from antiphon.dialects.vscode.parts_to_hub import (
    assistant_data_to_text,
    cache_marker,
    data_form,
    part_kind,
    require_member,
    user_data_to_hub,
)
from antiphon.dialects.vscode.request_in import ChoicesIn, MessageIn, PartIn
from antiphon.dialects.vscode.results_to_hub import result_to_hub
from antiphon.dialects.vscode.system_prompt import ASSISTANT, SYSTEM, USER, system_prompts
from antiphon.protocol import codec
from antiphon.protocol.content import InputText, OutputTextParam, ReasoningText
from antiphon.protocol.items import FunctionCallParam, ItemParam, MessageParam, MessageRole, ReasoningParam
from antiphon.protocol.losses import Losses


class InstructionsAndItems(NamedTuple):
    instructions: str | UnsetType
    items: list[ItemParam]


def messages_to_hub(messages: list[MessageIn], choices: ChoicesIn, losses: Losses) -> InstructionsAndItems:
    """A-6: the system prompt becomes `instructions`; a message of the system's further down stays where it is."""
    prompts = system_prompts(messages, choices)
    items: list[ItemParam] = []
    for at, message in enumerate(messages):
        path = f"messages[{at}]"
        report_unknown_fields(message, path, losses)
        if message.name:
            losses.add(f"{path}.name", f"the name {message.name!r}", "messages have no names there")
        if at < len(prompts):
            _lose_marks(message, path, losses)
        else:
            items += _Message(message, path, choices, losses).items()
    return InstructionsAndItems("\n\n".join(prompts) or UNSET, items)


class _Message:
    """One message, taken apart."""

    def __init__(self, message: MessageIn, path: str, choices: ChoicesIn, losses: Losses) -> None:
        self._message = message
        self._path = path
        self._choices = choices
        self._losses = losses
        self._role = self._role_of(message.role)
        self._items: list[ItemParam] = []
        self._parts: list[Any] = []  # what was said since the last item
        self._thought: str | None = None  # whose thinking the last item is, while more of it may follow

    def items(self) -> list[ItemParam]:
        content = self._message.content
        if isinstance(content, str):
            return [MessageParam(role=self._role, content=content)]
        for at, part in enumerate(content):
            if isinstance(part, str):
                self._say(part)
            else:
                self._take(part, f"{self._path}.content[{at}]")
        self._flush()
        return self._items

    def _role_of(self, role: Any) -> MessageRole:
        """A-1: whoever is unknown is the user."""
        hub_role = ROLES.get(role) if isinstance(role, int) else None
        if hub_role is None:
            self._losses.add(f"{self._path}.role", f"the role {role!r}", "nobody knows it: it is told as the user's")
        return hub_role or "user"

    def _take(self, part: PartIn, path: str) -> None:
        kind = part_kind(part)
        if kind is None:
            self._losses.add(
                path, "a part that is neither text, data, a call, a result nor thinking", "nobody knows what it is"
            )
            return
        report_unknown_fields(part, path, self._losses)
        match kind:
            case "text":
                self._say(self._text_of(part, path))
            case "data":
                self._data(part, path)
            case "thinking":
                self._think(part)
            case "tool_call":
                self._add(self._call(part, path))
            case "tool_result":
                self._add(result_to_hub(part, path, self._choices, self._losses))
            case _ as never:
                assert_never(never)

    def _text_of(self, part: PartIn, path: str) -> str:
        """The text of a part; one that calls itself text and holds something else is told as JSON."""
        value = require_member(part.value, f"{path}.value")
        return value if isinstance(value, str) else codec.encode(value).decode()

    def _say(self, text: str) -> None:
        """A-2, C-2."""
        self._thought = None
        if text:
            self._parts.append(OutputTextParam(text=text) if self._role == "assistant" else InputText(text=text))

    def _data(self, part: PartIn, path: str) -> None:
        if data_form(require_member(part.mime_type, f"{path}.mimeType")) == "mark":
            self._mark(part, path)
        elif self._role == "assistant":
            self._say(assistant_data_to_text(part, path, self._losses))
        else:
            self._thought = None
            self._parts.append(user_data_to_hub(part, path, self._choices, self._losses))

    def _mark(self, part: PartIn, path: str) -> None:
        """A mark stands on what was said, or given, right before it."""
        mark = cache_marker(part, path)
        if mark is None:
            self._losses.add(path, f"the mark {part.mime_type!r}", "it is the editor's own")
            return
        marked: list[Any] = self._parts or self._items
        if not marked or isinstance(marked[-1], ReasoningParam):
            self._losses.add(path, "where the prompt may be cached", "nothing stands before the mark")
            return
        marked[-1] = replace(marked[-1], extra={**(marked[-1].extra or {}), "cache_control": mark})

    def _call(self, part: PartIn, path: str) -> FunctionCallParam:
        """A-4: the input is an object here, and the text of its JSON there."""
        return FunctionCallParam(
            call_id=require_member(part.call_id, f"{path}.callId"),
            name=require_member(part.name, f"{path}.name"),
            arguments=codec.encode(part.input or {}).decode(),
        )

    def _think(self, part: PartIn) -> None:
        """RSN-2. Thinking comes in pieces, as it was told; those of one id are one thought, whose seal is on any of them."""
        pieces = part.value if isinstance(part.value, list) else [part.value]
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        signature = (part.metadata or {}).get("signature")
        sealed = signature if isinstance(signature, str) else ""
        if not text and not sealed:
            return
        id = part.id or ""
        last = self._items[-1] if self._items and self._thought == id else None
        if not isinstance(last, ReasoningParam):
            self._add(_reasoning(text, sealed))
        else:
            self._items[-1] = _reasoning(_thought_in(last) + text, (last.encrypted_content or "") + sealed)
        self._thought = id

    def _add(self, item: ItemParam) -> None:
        self._flush()
        self._items.append(item)
        self._thought = None

    def _flush(self) -> None:
        if self._parts:
            self._items.append(MessageParam(role=self._role, content=self._parts))
            self._parts = []


def _reasoning(text: str, sealed: str) -> ReasoningParam:
    content: Any = [ReasoningText(text=text)] if text else UNSET
    return ReasoningParam(summary=[], content=content, encrypted_content=sealed or UNSET)


def _thought_in(item: ReasoningParam) -> str:
    return "".join(part.text for part in item.content or () if isinstance(part, ReasoningText))


def _lose_marks(message: MessageIn, path: str, losses: Losses) -> None:
    """E-4: instructions are one text, with no place for marks."""
    if isinstance(message.content, str):
        return
    for at, part in enumerate(message.content):
        if isinstance(part, PartIn) and part_kind(part) == "data":
            why = LOSS_REASONS.get(str(part.mime_type), "it is the editor's own")
            losses.add(f"{path}.content[{at}]", f"the mark {part.mime_type!r}", why)


ROLES: Final[dict[int, MessageRole]] = {USER: "user", ASSISTANT: "assistant", SYSTEM: "system"}
