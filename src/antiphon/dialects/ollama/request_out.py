"""Writes a hub request as the body of `/api/chat`, with the losses.

The conversation, its tools and its settings are here; `dialects/common` orders the turns. The API has no tool choice
and accepts images only as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.effort import nearest_effort
from antiphon.dialects.common.empty_conversation import ends_with_user_message, text_for_empty_conversation
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.history import (
    AnsweredCall,
    AssistantTurn,
    PlacedItem,
    ToolCallParam,
    ToolOutputParam,
    build_history,
)
from antiphon.dialects.common.offered_tools import tools_with_paths, translate_tools_once
from antiphon.dialects.common.output_limit import refuse_empty_output
from antiphon.dialects.common.placeholders import text_or_placeholder, type_of
from antiphon.dialects.common.request_fields import (
    KNOWN_INCLUDES,
    LOGPROBS,
    append_members,
    refuse_several_answers,
    report_unsupported_fields,
    requested_format,
)
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.dialects.common.tool_names import OLLAMA_NAMES, ToolKind, ToolNames
from antiphon.dialects.common.unknown_fields import is_handled_by_gateway, report_unknown_fields
from antiphon.dialects.ollama.wire import (
    BODY_PREFIX,
    PREFIX,
    TOP_LEVEL_FIELDS,
    FunctionCallOut,
    FunctionOut,
    MessageOut,
    OllamaWire,
    RequestOut,
    ToolCallOut,
    ToolOut,
)
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.codec import JSON_WHITESPACE, decode_json
from antiphon.protocol.content import ContentParam, InputImageParam
from antiphon.protocol.items import AdditionalTools, FunctionCallParam, ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    JsonObjectFormat,
    Request,
    input_items,
)
from antiphon.protocol.tools import AllowedToolsParam, CustomTool, FunctionToolParam, JsonSchema


def request_from_hub(request: Request, wire: OllamaWire = OllamaWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """The body for a server, with the losses."""
    refuse_empty_output(request)
    refuse_several_answers(request)
    losses = Losses()
    names = ToolNames.for_request(request, OLLAMA_NAMES)
    tools = translate_tools_once(_tools, request, names, wire)
    losses.extend(tools.losses)
    messages = _messages(request, names, wire, losses)
    items, is_empty = input_items(request), all(message.role == "system" for message in messages)
    if is_empty or (messages[-1].role == "assistant" and ends_with_user_message(items)):
        messages.append(MessageOut(role="user", content=text_for_empty_conversation(items, losses)))
    extra = _native_fields(request, losses)
    _report_fields(request, losses, has_tools=tools.encoded is not UNSET)
    wants_logprobs = bool(request.top_logprobs) or LOGPROBS in (request.include or ())
    body = RequestOut(
        model=request.model or UNSET,
        messages=messages,
        stream=bool(request.stream),
        tools=UNSET if request.tool_choice == "none" else tools.encoded,
        format=_format(request, losses),
        think=_think(request, wire, losses),
        logprobs=wants_logprobs or UNSET,
        top_logprobs=request.top_logprobs or UNSET,
        options=_options(request, extra, losses) or UNSET,
    )
    top_level = {name: raw for name, raw in extra.items() if name in TOP_LEVEL_FIELDS}
    top_level |= {
        name.removeprefix(BODY_PREFIX): raw
        for name, raw in (request.extra or {}).items()
        if name.startswith(BODY_PREFIX)
    }
    return append_members(codec.encode(body), top_level), losses


# Settings


def _options(request: Request, extra: dict[str, Raw], losses: Losses) -> dict[str, Any]:
    settings = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "num_predict": request.max_output_tokens,
    }
    options: dict[str, Any] = {name: value for name, value in settings.items() if value not in (None, UNSET)}
    for name, raw in extra.items():
        if name in options:
            losses.add(PREFIX + name, f"the option {name!r}", "another field sets it")
        elif name not in TOP_LEVEL_FIELDS:
            options[name] = raw
    return options


def _format(request: Request, losses: Losses) -> Any:
    """REQ-1: the output format, which the server enforces."""
    format = requested_format(request, losses)
    if format is None:
        return UNSET
    if isinstance(format, JsonObjectFormat):
        return "json"
    schema = format.schema or None
    if format.description and schema is not None and "description" not in schema:
        return {**schema, "description": format.description}
    if format.description:
        losses.add("text.format.description", "the description of the output format", "the API has no equivalent")
    return schema or "json"


def _think(request: Request, wire: OllamaWire, losses: Losses) -> bool | str | UnsetType:
    """RSN-4: the server reads true as the level "medium"."""
    effort = request.reasoning.effort if request.reasoning else None
    if not effort:
        return UNSET
    if not wire.thinking:
        if effort != "none":
            losses.add("reasoning.effort", f"the effort {effort!r}", "the model does not think")
        return UNSET
    if effort in ("none", "medium"):
        return effort == "medium"
    level = nearest_effort(effort, wire.levels) if wire.levels else True
    if level != effort:
        losses.add("reasoning.effort", f"the effort {effort!r}", f"{level!r} is the nearest value of the server")
    return level


def _native_fields(request: Request, losses: Losses) -> dict[str, Raw]:
    """Fields of clients of this dialect under their own names, and equivalent fields of other dialects (REQ-7)."""
    own: dict[str, Raw] = {}
    for name, raw in (request.extra or {}).items():
        sent = name.removeprefix(PREFIX) if name.startswith(PREFIX) else EQUIVALENT_FIELDS.get(name)
        if is_handled_by_gateway(name, raw, request) or name.startswith(BODY_PREFIX):
            continue
        if sent is None:
            losses.add(name, f"the unknown field {name!r}", "it is unknown whether the server accepts it")
        elif sent in own or sent in RequestOut.__struct_fields__:
            losses.add(name, f"the field {name!r}", f"another field sets {sent!r}")
        else:
            own[sent] = _as_list(raw) if sent == "stop" else raw
    return own


def _as_list(raw: Raw) -> Raw:
    """Wrap a single stop sequence, which one dialect allows, in a list."""
    return Raw(b"[%b]" % bytes(raw)) if bytes(raw).lstrip().startswith(b'"') else raw


def _report_fields(request: Request, losses: Losses, *, has_tools: bool) -> None:
    """Report the fields that this API does not have."""
    if request.text and request.text.verbosity:
        losses.add("text.verbosity", f"the verbosity {request.text.verbosity!r}", "the API has no equivalent")
    if request.parallel_tool_calls is False and has_tools:
        losses.add("parallel_tool_calls", "the limit of one tool call", "the API has no equivalent")
    _report_tool_choice(request, losses)
    report_unsupported_fields(request, UNSUPPORTED_FIELDS, KNOWN_INCLUDES, losses)


def _report_tool_choice(request: Request, losses: Losses) -> None:
    """Report a forced call. TOOL-3: if tools are only allowed, policy withholds the calls of others."""
    choice = request.tool_choice
    if isinstance(choice, Shape):
        report_unknown_fields(choice, "tool_choice", losses)
    if (
        not choice
        or choice in ("auto", "none")
        or (isinstance(choice, AllowedToolsParam) and choice.mode != "required")
    ):
        return
    losses.add("tool_choice", "a forced tool call", "the API has no tool choice; the model may choose a tool")


# Tools


class _Offered(Struct, frozen=True):
    """Encoded tools, and their losses."""

    encoded: Raw | UnsetType
    losses: Losses


def _tools(request: Request, names: ToolNames, wire: OllamaWire) -> _Offered:
    del wire  # all servers accept the same tools
    losses = Losses()
    sent: dict[str, ToolOut] = {}
    for path, tool, namespace in tools_with_paths(request, losses, "the API has no namespaces of tools"):
        match tool:
            case FunctionToolParam():
                name = names.wire_name(("function", tool.name, namespace))
                if tool.strict:
                    losses.add(f"{path}.strict", "strict arguments", "the API has no equivalent")
                offered = _function(name, tool.description or "", _object_schema(tool.parameters or {}))
            case CustomTool():
                name = names.wire_name(("custom", tool.name, namespace))
                offered = _function(name, freeform_tools.description(tool, path, losses), freeform_tools.schema())
            case _:
                losses.add(path, f"a tool of type {type_of(tool)!r}", "the API has no equivalent")
                continue
        report_unknown_fields(tool, path, losses)
        if tool.defer_loading:
            losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        if sent.get(name, offered) != offered:
            why = "each tool is offered once; the last definition is used"
            losses.add(path, f"an earlier definition of {name!r}", why)
        sent[name] = offered
    return _Offered(Raw(codec.encode(list(sent.values()))) if sent else UNSET, losses)


def _function(name: str, description: str, parameters: JsonSchema) -> ToolOut:
    return ToolOut(function=FunctionOut(name=name, description=description or UNSET, parameters=parameters))


def _object_schema(schema: JsonSchema) -> JsonSchema:
    """The schema with the members that the server's templates need."""
    return {"type": "object", "properties": {}, **schema}


# Messages


def _messages(request: Request, names: ToolNames, wire: OllamaWire, losses: Losses) -> list[MessageOut]:
    history = build_history(input_items(request), losses, wire.orphan_outputs)
    messages = _Messages(names, wire, losses)
    if request.instructions:
        messages.done.append(MessageOut(role="system", content=request.instructions))
    for turn in history.turns:
        if type(turn) is AssistantTurn:
            messages.add_assistant(turn)
        else:
            messages.add(turn)
    for other in history.others:
        _report_item(other, losses)
    return messages.done


def _report_item(other: PlacedItem[ItemParam], losses: Losses) -> None:
    if isinstance(other.item, AdditionalTools):  # its tools are offered with the others
        report_unknown_fields(other.item, other.path, losses)
    else:
        losses.add(other.path, f"an item of type {type_of(other.item)!r}", "the API has no equivalent")


class _Messages:
    """Writes messages, turn by turn."""

    def __init__(self, names: ToolNames, wire: OllamaWire, losses: Losses) -> None:
        self.done: list[MessageOut] = []
        self._names = names
        self._wire = wire
        self._losses = losses
        self._phase_reported = False

    def add(self, turn: PlacedItem[MessageParam]) -> None:
        """Add a message of the user, the system or the developer."""
        self._report_fields(turn)
        is_of_user = turn.item.role == "user"
        images: list[str] = []
        text = self._text(turn.item.content, f"{turn.path}.content", turn.first_part, images if is_of_user else None)
        if text or images:
            role: Literal["user", "system"] = "user" if is_of_user else "system"
            self.done.append(MessageOut(role=role, content=text, images=images or UNSET))

    def add_assistant(self, turn: AssistantTurn) -> None:
        """Add a message of the model, and the results of its calls."""
        texts: list[str] = []
        for message in turn.messages:
            self._report_fields(message)
            texts.append(self._text(message.item.content, f"{message.path}.content", message.first_part))
        text = "\n".join(filter(None, texts))
        thinking = "\n".join(text for item in turn.reasoning for text in self._thoughts(item))
        calls = [self._call(answered, at) for at, answered in enumerate(turn.calls)]
        if text or thinking or calls:
            self.done.append(
                MessageOut(role="assistant", content=text, thinking=thinking or UNSET, tool_calls=calls or UNSET)
            )
        self._add_results(turn.calls)

    def _thoughts(self, reasoning: PlacedItem[ReasoningParam]) -> list[str]:
        """The texts of earlier reasoning. RSN-3: reasoning that another maker sealed is left out."""
        path, item = reasoning.path, reasoning.item
        report_unknown_fields(item, path, self._losses)
        envelope = unseal_reasoning(item.encrypted_content) if item.encrypted_content else None
        if item.encrypted_content and (envelope is None or envelope.maker != self._wire.maker):
            self._losses.add(path, "earlier reasoning", "another server made it, and only that server accepts it")
            return []
        own_text = envelope.content.get("thinking") if envelope is not None else None
        if isinstance(own_text, str):
            return [own_text]
        if item.content and item.summary:
            self._losses.add(f"{path}.summary", "the summary of earlier reasoning", "the reasoning itself is sent")
        member = "content" if item.content else "summary"
        return [self._text(item.content or item.summary, f"{path}.{member}", 0)]

    def _call(self, answered: AnsweredCall, index: int) -> ToolCallOut:
        path, call = answered.call.path, answered.call.item
        report_unknown_fields(call, path, self._losses)
        function = FunctionCallOut(index=index, name=self._name(call), arguments=self._arguments(call, path))
        return ToolCallOut(id=call.call_id, function=function)

    def _name(self, call: ToolCallParam) -> str:
        kind: ToolKind = "function" if isinstance(call, FunctionCallParam) else "custom"
        return self._names.wire_name((kind, call.name, call.namespace or None))

    def _arguments(self, call: ToolCallParam, path: str) -> Raw:
        if not isinstance(call, FunctionCallParam):
            return Raw(freeform_tools.wrap_input(call.input).encode())
        text = call.arguments.strip(JSON_WHITESPACE) or "{}"
        try:
            decode_json(text, type=dict[str, Raw])
        except msgspec.DecodeError:
            self._losses.add(f"{path}.arguments", "arguments that are not a JSON object", "they are wrapped in one")
            return Raw(msgspec.json.encode({"arguments": call.arguments}))
        return Raw(text.encode())

    def _add_results(self, calls: Sequence[AnsweredCall]) -> None:
        """Add the results of a turn. TOOL-6: their images follow all results, because templates show images only in
        user messages. A note replaces each."""
        labels: list[str] = []
        images: list[str] = []
        for answered in calls:
            call_id = answered.call.item.call_id
            own_images: list[str] = []
            self.done.append(self._result(answered, own_images))
            labels += [f"Image {number} of the result of call {call_id}:" for number in range(1, len(own_images) + 1)]
            images += own_images
        if images:
            self.done.append(MessageOut(role="user", content="\n".join(labels), images=images))

    def _result(self, answered: AnsweredCall, images: list[str]) -> MessageOut:
        call, output = answered.call.item, answered.output
        item: ToolOutputParam = mark_failure_in_text(output.item)
        report_unknown_fields(item, output.path, self._losses)
        text = self._text(item.output, f"{output.path}.output", 0, images, is_result=True)
        return MessageOut(role="tool", content=text, tool_name=self._name(call), tool_call_id=call.call_id)

    def _text(
        self,
        content: str | Sequence[ContentParam],
        path: str,
        first: int,
        images: list[str] | None = None,
        *,
        is_result: bool = False,
    ) -> str:
        """The text of a content. Its images are added to `images`, if the message may have some; in the text of a
        result, a note replaces each."""
        if isinstance(content, str):
            return content
        texts: list[str] = []
        for at, part in enumerate(content, first):
            place = f"{path}[{at}]"
            data = self._image(part, place) if isinstance(part, InputImageParam) and images is not None else None
            if data is None:
                texts.append(text_or_placeholder(part, place, self._no_place(part), self._losses))
            else:
                assert images is not None
                images.append(data)
                if is_result:
                    texts.append(f"[image {len(images)} of this result follows below]")
        return "\n".join(texts)

    def _no_place(self, part: ContentParam) -> str:
        if not isinstance(part, InputImageParam):
            return "the API has no equivalent"
        return "the API accepts only image data in user messages" if self._wire.images else "the model sees no images"

    def _image(self, part: InputImageParam, path: str) -> str | None:
        """The base64 data of an image; None if the server cannot get it."""
        url = part.image_url or ""
        head, _, data = url.partition(",")
        if not self._wire.images or not (head.startswith("data:") and head.endswith(";base64")):
            return None
        report_unknown_fields(part, path, self._losses)
        if part.detail and part.detail != "auto":
            self._losses.add(f"{path}.detail", f"the detail {part.detail!r}", "the API has no equivalent")
        if part.file_id:
            self._losses.add(f"{path}.file_id", "the file id of an image", "its data is sent instead")
        return data

    def _report_fields(self, message: PlacedItem[MessageParam]) -> None:
        report_unknown_fields(message.item, message.path, self._losses)
        if message.item.phase and not self._phase_reported:  # once, because a history may have hundreds
            self._phase_reported = True
            self._losses.add(f"{message.path}.phase", "the phase of a message", "the API has no equivalent")


UNSUPPORTED_FIELDS: Final = (
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "client_metadata",
    "user",
)
#: Fields of other dialects, with the option of the same meaning.
EQUIVALENT_FIELDS: Final[dict[str, str]] = {
    "chat:stop": "stop",
    "messages:stop_sequences": "stop",
    "gemini:stopSequences": "stop",
    "seed": "seed",
    "top_k": "top_k",
    "chat:seed": "seed",
    "gemini:seed": "seed",
    "chat:top_k": "top_k",
    "messages:top_k": "top_k",
    "gemini:topK": "top_k",
    "chat:min_p": "min_p",
}
