"""Reads a client's request of `/api/chat` or `/api/generate` as a hub request, with the losses.

Calls and their results may have no ids in this API: a result then belongs to the first call of its tool that has none.
Options that the hub does not have are kept as `extra["ollama:name"]` and sent to Ollama servers (REQ-7).
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.output_limit import OLLAMA_UNLIMITED, output_limit_to_hub
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.ollama.wire import (
    BODY_PREFIX,
    GENERATE,
    PREFIX,
    TOP_LEVEL_FIELDS,
    ChatIn,
    GenerateIn,
    MessageIn,
    SettingsIn,
    ToolCallIn,
    ToolIn,
)
from antiphon.errors import InvalidValue, MissingField, UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.content import ContentParam, InputImageParam, InputText, OutputTextParam, ReasoningText
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
    ReasoningParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    ReasoningEffort,
    Request,
    TextParam,
)
from antiphon.protocol.tools import FunctionToolParam, ToolParam

LOGPROBS: Final = "message.output_text.logprobs"


def request_to_hub(body: bytes) -> tuple[Request, Losses]:
    """The hub request for a body; one with `prompt` instead of `messages` is one of `/api/generate`."""
    try:
        names = decode_json(body, type=dict[str, Raw]).keys()
    except msgspec.DecodeError:
        names = {}.keys()  # the typed decoder names the problem
    return _generate_to_hub(body) if "prompt" in names and "messages" not in names else _chat_to_hub(body)


def request_at_path(path: str, body: bytes) -> tuple[Request, Losses]:
    """The hub request for a body that was sent to a path."""
    return _generate_to_hub(body) if path.endswith("/generate") else _chat_to_hub(body)


def _chat_to_hub(body: bytes) -> tuple[Request, Losses]:
    chat: ChatIn = codec.decode_as(body, ChatIn)
    if not chat.messages:
        raise MissingField(f"messages is missing: expected at least one message; {NO_LOADING}", param="messages")
    losses = Losses()
    history = _History(losses)
    for at, message in enumerate(chat.messages):
        history.take(message, at)
    tools: list[ToolParam] = [_tool(tool, f"tools[{at}]", losses) for at, tool in enumerate(chat.tools or ())]
    return _request(chat, "\n\n".join(history.instructions), history.items, tools), losses


def _generate_to_hub(body: bytes) -> tuple[Request, Losses]:
    generate: GenerateIn = codec.decode_as(body, GenerateIn)
    for name in UNSUPPORTED_FIELDS:
        if bytes((generate.extra or {}).get(name, b"null")) not in UNSET_VALUES:
            raise UnsupportedParameter(f"{name}: the gateway sends conversations, not raw prompts", param=name)
    if not generate.prompt:
        raise MissingField(f"prompt is missing: expected a text; {NO_LOADING}", param="prompt")
    content: list[ContentParam] = [
        InputText(text=generate.prompt),
        *(_image(data, f"images[{at}]") for at, data in enumerate(generate.images or ())),
    ]
    items: list[ItemParam] = [MessageParam(role="user", content=content)]
    return _request(generate, generate.system or "", items, []), Losses()


def _request(settings: SettingsIn, instructions: str, items: list[ItemParam], tools: list[ToolParam]) -> Request:
    extra = {
        (PREFIX if name in TOP_LEVEL_FIELDS else BODY_PREFIX) + name: raw
        for name, raw in (settings.extra or {}).items()
        if name not in UNSUPPORTED_FIELDS
    }
    options = settings.options or None
    if options is not None:
        extra |= {PREFIX + name: raw for name, raw in (options.extra or {}).items() if bytes(raw) != b"null"}
    if isinstance(settings, GenerateIn):
        extra[GENERATE] = Raw(b"{}")
    limit = options.num_predict if options else UNSET
    return Request(
        model=settings.model,
        instructions=instructions or UNSET,
        input=items,
        tools=tools or UNSET,
        text=_format(settings),
        reasoning=_reasoning(settings),
        max_output_tokens=output_limit_to_hub(limit, "options.num_predict", OLLAMA_UNLIMITED),
        temperature=options.temperature if options else UNSET,
        top_p=options.top_p if options else UNSET,
        presence_penalty=options.presence_penalty if options else UNSET,
        frequency_penalty=options.frequency_penalty if options else UNSET,
        # The client has no place for seals. The gateway does not withhold them, so that their loss is reported.
        include=[ENCRYPTED_IF_ANY, LOGPROBS] if settings.logprobs else [ENCRYPTED_IF_ANY],
        top_logprobs=settings.top_logprobs if settings.logprobs else UNSET,
        stream=settings.stream is not False,
        extra=extra or UNSET,
    )


def _format(settings: SettingsIn) -> TextParam | UnsetType:
    match settings.format:
        case "json":
            return TextParam(format=JsonObjectFormat())
        case dict() as schema if schema:
            return TextParam(format=JsonSchemaFormatParam(name="response", schema=schema))
        case _:
            return UNSET


def _reasoning(settings: SettingsIn) -> ReasoningConfigParam | UnsetType:
    """RSN-4: the API itself reads true as the level "medium"."""
    effort: ReasoningEffort
    match settings.think:
        case True:
            effort = "medium"
        case False:
            effort = "none"
        case str() as effort:
            pass
        case _:
            return UNSET
    return ReasoningConfigParam(effort=effort)


def _tool(tool: ToolIn, path: str, losses: Losses) -> FunctionToolParam:
    report_unknown_fields(tool, path, losses)
    report_unknown_fields(tool.function, f"{path}.function", losses)
    return FunctionToolParam(
        name=tool.function.name,
        description=tool.function.description,
        parameters=tool.function.parameters,
        strict=False,
    )


class _History:
    """Translates messages into items, in their order. Leading system messages become the instructions (E-4)."""

    def __init__(self, losses: Losses) -> None:
        self.instructions: list[str] = []
        self.items: list[ItemParam] = []
        self._losses = losses
        self._waiting: list[tuple[str, str]] = []  # id and name of the calls that have no result yet

    def take(self, message: MessageIn, at: int) -> None:
        path = f"messages[{at}]"
        role = message.role.lower()
        self._report_fields(message, role, path)
        text = message.content or ""
        if role == "tool":
            call_id = message.tool_call_id or self._call_without_result(message.tool_name or "", at)
            self._waiting = [(id, name) for id, name in self._waiting if id != call_id]
            self.items.append(FunctionCallOutputParam(call_id=call_id, output=text))
        elif role == "assistant":
            self._take_assistant(message, text, at)
        elif role == "system" and not self.items:
            self.instructions.append(text)
        else:
            images = [_image(data, f"{path}.images[{of}]") for of, data in enumerate(message.images or ())]
            texts: list[ContentParam] = [InputText(text=text)] if text or not images else []
            other_role: MessageRole = "system" if role == "system" else "user"
            self.items.append(MessageParam(role=other_role, content=[*texts, *images]))

    def _take_assistant(self, message: MessageIn, text: str, at: int) -> None:
        if message.thinking:
            self.items.append(ReasoningParam(summary=[], content=[ReasoningText(text=message.thinking)]))
        if text or not message.tool_calls:
            self.items.append(MessageParam(role="assistant", content=[OutputTextParam(text=text)]))
        for of, call in enumerate(message.tool_calls or ()):
            self._take_call(call, call.id or f"call_{at}_{of}", f"messages[{at}].tool_calls[{of}]")

    def _take_call(self, call: ToolCallIn, call_id: str, path: str) -> None:
        report_unknown_fields(call, path, self._losses)
        report_unknown_fields(call.function, f"{path}.function", self._losses)
        arguments = codec.encode(call.function.arguments or {}).decode()
        self.items.append(FunctionCallParam(call_id=call_id, name=call.function.name, arguments=arguments))
        self._waiting.append((call_id, call.function.name))

    def _call_without_result(self, name: str, at: int) -> str:
        """The id of the first call of a tool without a result; a result without a tool belongs to any call."""
        ids = [id for id, called in self._waiting if called == name or not name]
        return ids[0] if ids else f"call_{at}"

    def _report_fields(self, message: MessageIn, role: str, path: str) -> None:
        report_unknown_fields(message, path, self._losses)
        for name, roles in ROLES_OF_FIELD.items():
            if getattr(message, name) and role not in roles:
                self._losses.add(f"{path}.{name}", f"the field {name!r}", f"a message of the role {role!r} has none")


def _image(data: str, path: str) -> InputImageParam:
    kind = next((kind for head, kind in IMAGE_TYPES.items() if data.startswith(head)), None)
    if kind is None:
        wanted = "a PNG, JPEG, GIF, WebP or BMP image in base64, without `data:`"
        raise InvalidValue(f"{path}: expected {wanted}, got {data[:20]!r}", param=path)
    return InputImageParam(image_url=f"data:{kind};base64,{data}")


NO_LOADING: Final = "the gateway does not load or unload models"
#: Fields of `/api/generate` that change the prompt itself.
UNSUPPORTED_FIELDS: Final = ("suffix", "raw", "context", "template")
UNSET_VALUES: Final = (b"null", b'""', b"false", b"[]")
ROLES_OF_FIELD: Final = {
    "thinking": ("assistant",),
    "tool_calls": ("assistant",),
    "images": ("user",),
    "tool_name": ("tool",),
    "tool_call_id": ("tool",),
}
#: Media types by the first characters of base64 data.
IMAGE_TYPES: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "Qk": "image/bmp",
}
