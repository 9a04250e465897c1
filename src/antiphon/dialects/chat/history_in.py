"""Translates a chat client's messages into hub items, in their order. The role sets the content type (E-1, C-2, E-5).

Reasoning, text and calls of one message become separate items. `cache_control` and other fields that the hub does not
have are removed and reported as losses (E-4).
"""

from __future__ import annotations

from typing import Final, assert_never

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.chat.reasoning import reasoning_to_hub
from antiphon.dialects.chat.wire import (
    FilePartIn,
    FunctionCallIn,
    ImagePartIn,
    ImageUrlIn,
    MessageIn,
    PartIn,
    PlainPartIn,
    TextIn,
    ToolCallIn,
)
from antiphon.dialects.common.history import InstructionsAndItems, call_from_block, output_from_block
from antiphon.dialects.common.placeholders import replace_with_placeholder
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import MissingField
from antiphon.protocol import codec
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
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


def messages_to_hub(messages: list[MessageIn], losses: Losses) -> InstructionsAndItems:
    """E-4: leading system text becomes `instructions`; all other messages become items."""
    items = _Items(messages, losses)
    instructions: list[str] = []
    for at, message in enumerate(messages):
        texts = _system_texts(message) if at == len(instructions) else None
        if texts is None:
            items.take(message, at)
        else:
            instructions.append(items.instruction(message, texts, at))
    return InstructionsAndItems("\n\n".join(instructions) if instructions else UNSET, items.done)


def _system_texts(message: MessageIn) -> list[TextIn] | None:
    """Return the parts of a system message that contains only text."""
    if message.role != "system" or message.content is None or message.content is UNSET:
        return None
    parts = _parts(message.content)
    texts = [part for part in parts if isinstance(part, TextIn)]
    return texts if len(texts) == len(parts) else None


class _Items:
    """Translates messages one by one."""

    def __init__(self, messages: list[MessageIn], losses: Losses) -> None:
        self.done: list[ItemParam] = []
        self._losses = losses
        calls = [call for message in messages for call in message.tool_calls or ()]
        self._custom_ids = {call.id for call in calls if call.custom}
        self._waiting: dict[str, list[str]] = {}  # calls in the form before `tool_calls`, which have no ids, by name

    def instruction(self, message: MessageIn, texts: list[TextIn], at: int) -> str:
        self._report_fields(message, f"messages[{at}]")
        for of, part in enumerate(texts):
            self._part(part, "system", f"messages[{at}].content[{of}]")
        return "\n".join(part.text for part in texts)

    def take(self, message: MessageIn, at: int) -> None:
        path = f"messages[{at}]"
        self._report_fields(message, path)
        match message.role:
            case "assistant":
                self._take_assistant(message, at, path)
            case "tool":
                if not message.tool_call_id:
                    raise MissingField(
                        f"{path}.tool_call_id is missing: expected the id of a call", param=f"{path}.tool_call_id"
                    )
                self._take_output(message.tool_call_id, message, path)
            case "function":
                if not message.name:
                    raise MissingField(f"{path}.name is missing: expected the name of a function", param=f"{path}.name")
                waiting = self._waiting.get(message.name)
                self._take_output(waiting.pop() if waiting else f"call_{at}", message, path)
            case role:
                if message.content is None or message.content is UNSET:
                    wanted = "expected a string or an array of parts"
                    raise MissingField(f"{path}.content is missing: {wanted}", param=f"{path}.content")
                self._take_content(_parts(message.content), role, path)

    def _take_assistant(self, message: MessageIn, at: int, path: str) -> None:
        thoughts = reasoning_to_hub(message, path, self._losses)
        calls = {call.id for call in message.tool_calls or ()}
        self.done += [thought.item for thought in thoughts if thought.call_id not in calls]
        parts = _parts(message.content)
        if message.content == "" and (message.tool_calls or message.function_call):
            parts = []
        if message.refusal:  # clients may repeat it in the content, for servers without the field
            parts = [*(() if message.content == message.refusal else parts), Refusal(refusal=message.refusal)]
        if parts:
            self._take_content(parts, "assistant", path)
        for of, call in enumerate(message.tool_calls or ()):
            self.done += [thought.item for thought in thoughts if thought.call_id == call.id]
            self.done.append(self._call(call, f"{path}.tool_calls[{of}]"))
        if message.function_call:
            self._waiting.setdefault(message.function_call.name, []).append(f"call_{at}")
            self.done.append(self._function_call(message.function_call, f"call_{at}", f"{path}.function_call"))

    def _take_content(self, content: list[PartIn], role: MessageRole, path: str) -> None:
        """E-1: calls and results inside a message become separate items, in their order."""
        parts: list[ContentParam] = []
        for at, part in enumerate(content):
            place = f"{path}.content[{at}]"
            if not isinstance(part, ToolUse | ToolResult):
                parts.append(self._part(part, role, place))
                continue
            if parts:
                self.done.append(MessageParam(role=role, content=parts))
                parts = []
            report_unknown_fields(part, place, self._losses)
            self.done.append(call_from_block(part) if isinstance(part, ToolUse) else output_from_block(part))
        if parts or not content:
            self.done.append(MessageParam(role=role, content=parts))

    def _take_output(self, call_id: str, message: MessageIn, path: str) -> None:
        output: str | list[ToolOutputContentParam]
        if isinstance(message.content, list):
            output = [self._output_part(part, f"{path}.content[{at}]") for at, part in enumerate(message.content)]
        else:
            output = message.content or ""
        if call_id in self._custom_ids:
            self.done.append(CustomToolCallOutputParam(call_id=call_id, output=output))
        else:
            self.done.append(FunctionCallOutputParam(call_id=call_id, output=output))

    def _call(self, call: ToolCallIn, path: str) -> ItemParam:
        report_unknown_fields(call, path, self._losses)
        if call.custom:
            report_unknown_fields(call.custom, f"{path}.custom", self._losses)
            return CustomToolCallParam(call_id=call.id, name=call.custom.name, input=call.custom.input)
        if not call.function:
            raise MissingField(f"{path}.function is missing: expected the called function", param=f"{path}.function")
        return self._function_call(call.function, call.id, f"{path}.function")

    def _function_call(self, function: FunctionCallIn, call_id: str, path: str) -> FunctionCallParam:
        report_unknown_fields(function, path, self._losses)
        given = function.arguments
        arguments = given if isinstance(given, str) else codec.encode(given).decode()
        return FunctionCallParam(call_id=call_id, name=function.name, arguments=arguments)

    def _part(self, part: PlainPartIn, role: MessageRole, path: str) -> ContentParam:
        if isinstance(part, UnknownContent):
            return self._unknown(part, path)
        report_unknown_fields(part, path, self._losses)
        match part:
            case Text() | InputText() | OutputTextParam():
                if isinstance(part, OutputTextParam) and (part.annotations or part.logprobs):
                    self._losses.add(path, "annotations and log probabilities", "an input message has no equivalent")
                return OutputTextParam(text=part.text) if role == "assistant" else InputText(text=part.text)
            case Refusal(refusal=refusal):
                return Refusal(refusal=refusal) if role == "assistant" else InputText(text=refusal)
            case ImagePartIn(image_url=image):
                media: ContentParam = self._image(image, f"{path}.image_url")
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
        note = self._note(media, path)
        return OutputTextParam(text=note) if role == "assistant" else InputText(text=note)

    def _output_part(self, part: PartIn, path: str) -> ToolOutputContentParam:
        converted: ContentParam = part if isinstance(part, ToolUse | ToolResult) else self._part(part, "user", path)
        if isinstance(converted, InputText | InputImageParam | InputFileParam | UnknownContent):
            return converted
        return InputText(text=self._note(converted, path))

    def _image(self, image: ImageUrlIn | str, path: str) -> InputImageParam:
        if isinstance(image, str):
            return InputImageParam(image_url=image)
        report_unknown_fields(image, path, self._losses)
        return InputImageParam(image_url=image.url, detail=image.detail)

    def _unknown(self, part: UnknownContent, path: str) -> UnknownContent:
        fields = part.raw_members()
        if fields.pop("cache_control", None) is None:
            return part
        self._losses.add(f"{path}.cache_control", "the field 'cache_control'", "the server manages its cache itself")
        return UnknownContent(kind=part.kind, raw=Raw(codec.encode(fields)))

    def _note(self, part: ContentParam, path: str) -> str:
        return replace_with_placeholder(part, path, "this message cannot have it", self._losses)

    def _report_fields(self, message: MessageIn, path: str) -> None:
        report_unknown_fields(message, path, self._losses)
        for name, role in ROLE_OF_FIELD.items():
            if role != message.role and getattr(message, name):
                self._losses.add(
                    f"{path}.{name}", f"the field {name!r}", f"a message of the role {message.role!r} cannot have it"
                )


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
