"""Translates a chat client's messages into hub items, in their order. The role sets the content type (E-1, C-2, E-5).

Reasoning, text and calls of one message become separate items. `cache_control` and `prompt_cache_breakpoint` become the
hub's cache marks (E-4). Fields that the hub does not have are removed and reported as losses.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.chat.reasoning import reasoning_to_hub
from antiphon.dialects.chat.wire import (
    DEVELOPER_FIELD,
    PARTS_FIELD,
    PREFIX,
    VIDEO_FIELD,
    FilePartIn,
    FunctionCallIn,
    ImagePartIn,
    ImageUrlIn,
    MessageIn,
    PartIn,
    PlainPartIn,
    TextIn,
    ToolCallIn,
    TypedPartIn,
)
from antiphon.dialects.common.cache_marks import CACHE_MARK, take_any_mark, with_mark
from antiphon.dialects.common.history import InstructionsAndItems, call_from_block, output_from_block
from antiphon.dialects.common.placeholders import replace_with_placeholder
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import MissingField
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    OutputTextParam,
    Refusal,
    Text,
    ToolOutputContentParam,
    ToolResult,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
)
from antiphon.protocol.losses import Losses


def history_to_hub(messages: list[MessageIn], losses: Losses) -> InstructionsAndItems:
    """E-4: leading system text without cache marks becomes `instructions`; all other messages become items."""
    items = _ItemCollector(messages, losses)
    instructions: list[str] = []
    for index, message in enumerate(messages):
        texts = _system_texts(message) if index == len(instructions) else None
        if texts is None:
            items.add_message(message, index)
        else:
            instructions.append(items.instruction_text(message, texts, index))
    return InstructionsAndItems("\n\n".join(instructions) if instructions else UNSET, items.items)


def _message(role: MessageRole, parts: list[ContentParam]) -> MessageParam:
    mark = None
    if role == "developer":
        mark = DEVELOPER_FIELD
    elif role == "user" and len(parts) > 1 and all(isinstance(part, InputText) for part in parts):
        mark = PARTS_FIELD
    return MessageParam(role=role, content=parts, extra={mark: Raw(b"true")} if mark else UNSET)


def _system_texts(message: MessageIn) -> list[TextIn] | None:
    """Return the parts of a system message that contains only text without cache marks."""
    if message.role != "system" or message.content is None or message.content is UNSET or _is_marked(message):
        return None
    parts = _parts(message.content)
    texts = [part for part in parts if isinstance(part, TextIn) and not _is_marked(part)]
    return texts if len(texts) == len(parts) else None


class _ItemCollector:
    """Translates messages one by one."""

    def __init__(self, messages: list[MessageIn], losses: Losses) -> None:
        self.items: list[ItemParam] = []
        self._losses = losses
        calls = [call for message in messages for call in message.tool_calls or ()]
        self._custom_ids = {call.id for call in calls if call.custom}
        self._unanswered_calls: dict[
            str, list[str]
        ] = {}  # calls in the form before `tool_calls`, which have no ids, by name

    def instruction_text(self, message: MessageIn, texts: list[TextIn], index: int) -> str:
        self._report_fields(message, f"messages[{index}]")
        for part_index, part in enumerate(texts):
            self._part_to_hub(part, "system", f"messages[{index}].content[{part_index}]")
        return "\n".join(part.text for part in texts)

    def add_message(self, message: MessageIn, index: int) -> None:
        path = f"messages[{index}]"
        message, mark = take_any_mark(message)
        self._report_fields(message, path)
        count = len(self.items)
        self._add_items(message, index, path)
        if mark is not None and not (len(self.items) > count and self._mark_end(mark)):
            self._losses.add(f"{path}.{CACHE_MARK}", "a cache mark", "the message has no place for it")

    def _mark_end(self, mark: Raw) -> bool:
        """Mark the last item: the last part of a message, else the item. Return whether this is possible."""
        item = self.items[-1]
        if not isinstance(item, MessageParam):
            self.items[-1] = with_mark(item, mark)
            return True
        if not isinstance(item.content, list) or not item.content or isinstance(item.content[-1], UnknownContent):
            return False
        self.items[-1] = replace(item, content=[*item.content[:-1], with_mark(item.content[-1], mark)])
        return True

    def _add_items(self, message: MessageIn, index: int, path: str) -> None:
        match message.role:
            case "assistant":
                self._add_assistant(message, index, path)
            case "tool":
                if not message.tool_call_id:
                    raise MissingField(
                        f"{path}.tool_call_id is missing: expected the id of a call", param=f"{path}.tool_call_id"
                    )
                self._add_output(message.tool_call_id, message, path)
            case "function":
                if not message.name:
                    raise MissingField(f"{path}.name is missing: expected the name of a function", param=f"{path}.name")
                unanswered = self._unanswered_calls.get(message.name)
                self._add_output(unanswered.pop() if unanswered else f"call_{index}", message, path)
            case role:
                if message.content is None or message.content is UNSET:
                    expected = "expected a string or an array of parts"
                    raise MissingField(f"{path}.content is missing: {expected}", param=f"{path}.content")
                self._add_content(_parts(message.content), role, path)

    def _add_assistant(self, message: MessageIn, index: int, path: str) -> None:
        thoughts = reasoning_to_hub(message, path, self._losses)
        calls = {call.id for call in message.tool_calls or ()}
        self.items += [thought.item for thought in thoughts if thought.call_id not in calls]
        parts = _parts(message.content)
        if message.content == "" and (message.tool_calls or message.function_call):
            parts = []
        if message.refusal:  # clients may repeat it in the content, for servers without the field
            parts = [*(() if message.content == message.refusal else parts), Refusal(refusal=message.refusal)]
        if parts:
            self._add_content(parts, "assistant", path)
        for call_index, call in enumerate(message.tool_calls or ()):
            self.items += [thought.item for thought in thoughts if thought.call_id == call.id]
            self.items.append(self._call_to_hub(call, f"{path}.tool_calls[{call_index}]"))
        if message.function_call:
            self._unanswered_calls.setdefault(message.function_call.name, []).append(f"call_{index}")
            self.items.append(
                self._function_call_to_hub(message.function_call, f"call_{index}", f"{path}.function_call")
            )

    def _add_content(self, content: list[PartIn], role: MessageRole, path: str) -> None:
        """E-1: calls and results inside a message become separate items, in their order."""
        parts: list[ContentParam] = []
        for index, part in enumerate(content):
            part_path = f"{path}.content[{index}]"
            if not isinstance(part, ToolUse | ToolResult):
                parts.append(self._part_to_hub(part, role, part_path))
                continue
            if parts:
                self.items.append(_message(role, parts))
                parts = []
            block, mark = take_any_mark(part)
            report_unknown_fields(block, part_path, self._losses)
            item = call_from_block(block) if isinstance(block, ToolUse) else output_from_block(block)
            self.items.append(with_mark(item, mark))
        if parts or not content:
            self.items.append(_message(role, parts))

    def _add_output(self, call_id: str, message: MessageIn, path: str) -> None:
        output: str | list[ToolOutputContentParam]
        if isinstance(message.content, list):
            output = [
                self._output_part_to_hub(part, f"{path}.content[{index}]") for index, part in enumerate(message.content)
            ]
        else:
            output = message.content or ""
        if call_id in self._custom_ids:
            self.items.append(CustomToolCallOutputParam(call_id=call_id, output=output))
        else:
            self.items.append(FunctionCallOutputParam(call_id=call_id, output=output))

    def _call_to_hub(self, call: ToolCallIn, path: str) -> ItemParam:
        report_unknown_fields(call, path, self._losses)
        if call.custom:
            report_unknown_fields(call.custom, f"{path}.custom", self._losses)
            return CustomToolCallParam(call_id=call.id, name=call.custom.name, input=call.custom.input)
        if not call.function:
            raise MissingField(f"{path}.function is missing: expected the called function", param=f"{path}.function")
        return self._function_call_to_hub(call.function, call.id, f"{path}.function")

    def _function_call_to_hub(self, function: FunctionCallIn, call_id: str, path: str) -> FunctionCallParam:
        report_unknown_fields(function, path, self._losses)
        arguments_value = function.arguments
        arguments = arguments_value if isinstance(arguments_value, str) else codec.encode(arguments_value).decode()
        return FunctionCallParam(call_id=call_id, name=function.name, arguments=arguments)

    def _part_to_hub(self, part: PlainPartIn, role: MessageRole, path: str) -> ContentParam:
        if isinstance(part, UnknownContent):
            return _native_part(self._without_cache_control(part, path), role)
        plain, mark = take_any_mark(part)
        report_unknown_fields(plain, path, self._losses)
        converted: ContentParam = with_mark(self._content_to_hub(plain, role, path), mark)
        return converted

    def _content_to_hub(self, part: TypedPartIn, role: MessageRole, path: str) -> ContentParam:
        match part:
            case Text() | InputText() | OutputTextParam():
                if isinstance(part, OutputTextParam) and (part.annotations or part.logprobs):
                    self._losses.add(path, "annotations and log probabilities", "an input message has no equivalent")
                return OutputTextParam(text=part.text) if role == "assistant" else InputText(text=part.text)
            case Refusal(refusal=refusal):
                return Refusal(refusal=refusal) if role == "assistant" else InputText(text=refusal)
            case ImagePartIn(image_url=image):
                media: ContentParam = self._image_to_hub(image, f"{path}.image_url")
            case FilePartIn(file=file):
                report_unknown_fields(file, f"{path}.file", self._losses)
                media = InputFileParam(file_data=file.file_data, file_id=file.file_id, filename=file.filename)
            case InputAudio(input_audio=audio):
                report_unknown_fields(audio, f"{path}.input_audio", self._losses)
                media = InputAudio(input_audio=replace(audio, extra=UNSET))
            case _ as never:
                assert_never(never)
        if role == "user":
            return media
        note = self._placeholder(media, path)
        return OutputTextParam(text=note) if role == "assistant" else InputText(text=note)

    def _output_part_to_hub(self, part: PartIn, path: str) -> ToolOutputContentParam:
        converted: ContentParam = (
            part if isinstance(part, ToolUse | ToolResult) else self._part_to_hub(part, "user", path)
        )
        if isinstance(converted, InputText | InputImageParam | InputFileParam | InputVideo | UnknownContent):
            return converted
        return InputText(text=self._placeholder(converted, path))

    def _image_to_hub(self, image: ImageUrlIn | str, path: str) -> InputImageParam:
        if isinstance(image, str):
            return InputImageParam(image_url=image)
        report_unknown_fields(image, path, self._losses)
        return InputImageParam(image_url=image.url, detail=image.detail)

    def _without_cache_control(self, part: UnknownContent, path: str) -> UnknownContent:
        fields = part.raw_members()
        if fields.pop("cache_control", None) is None:
            return part
        self._losses.add(f"{path}.cache_control", "the field 'cache_control'", "the server manages its cache itself")
        return UnknownContent(kind=part.kind, raw=Raw(codec.encode(fields)))

    def _placeholder(self, part: ContentParam, path: str) -> str:
        return replace_with_placeholder(part, path, "this message cannot have it", self._losses)

    def _report_fields(self, message: MessageIn, path: str) -> None:
        report_unknown_fields(message, path, self._losses)
        for name, role in ROLE_OF_FIELD.items():
            # Many clients repeat the name of the function in its result.
            is_repeated = name == "name" and message.role == "tool"
            if role != message.role and getattr(message, name) and not is_repeated:
                self._losses.add(
                    f"{path}.{name}", f"the field {name!r}", f"a message of the role {message.role!r} cannot have it"
                )


def _native_part(part: UnknownContent, role: MessageRole) -> InputVideo | UnknownContent:
    """A part that only some servers know: a video of the user, or an unknown part."""
    video = part.raw_members().get("video_url") if part.kind == "video_url" and role == "user" else None
    match msgspec.json.decode(video) if video is not None else None:
        case str(url) | {"url": str(url)}:
            return InputVideo(video_url=url, extra={VIDEO_FIELD: part.raw})
        case _:
            return UnknownContent(kind=PREFIX + part.kind, raw=part.raw)


def _is_marked(shape: Shape) -> bool:
    return take_any_mark(shape)[1] is not None


def _parts(content: str | list[PartIn] | None | UnsetType) -> list[PartIn]:
    return [Text(text=content)] if isinstance(content, str) else content or []


#: Fields that are read in messages of one role only. Hub messages have no name.
ROLE_OF_FIELD: Final = {
    "name": "function",
    "tool_call_id": "tool",
    "tool_calls": "assistant",
    "function_call": "assistant",
    "refusal": "assistant",
    "reasoning_content": "assistant",
    "reasoning": "assistant",
    "reasoning_details": "assistant",
}
