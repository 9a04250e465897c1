"""The shapes of Chat Completions requests, and the differences between servers (`ChatWire`).

The shapes for client requests are strict, so that errors name the wrong field. `response_wire` has the response shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.content import (
    FileData,
    ImageDetail,
    ImageUrl,
    InputAudio,
    InputText,
    Number,
    OutputTextParam,
    Refusal,
    Text,
    Text10M,
    ToolResult,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.request import (
    JsonObjectFormat,
    Metadata,
    PromptCacheOptions,
    ReasoningEffort,
    ShortKey,
    TextFormat,
)
from antiphon.protocol.tools import (
    GrammarFormat,
    HostedTool,
    JsonSchema,
    NamespaceTool,
    TextFormatOfTool,
    ToolChoiceValue,
    ToolName,
    ToolSearchTool,
    UnknownTool,
    UnknownToolChoice,
)

#: The prefix of fields that only Chat has, in the `extra` of a hub request.
PREFIX: Final = "chat:"
#: In the `extra` of a hub request: the stream options of a Chat client, except obfuscation.
STREAM_OPTIONS: Final = "chat:stream_options"
#: In the `extra` of a message: true if a Chat client sent it with the role `developer`.
DEVELOPER_FIELD: Final = "chat:developer"
#: In the `extra` of a user message: true if a Chat client sent several texts, which must not become one.
PARTS_FIELD: Final = "chat:parts"
#: In the `extra` of a video: the part of a Chat client.
VIDEO_FIELD: Final = "chat:video_url"
#: In the `extra` of a request: the settings for reasoning that some APIs have, which are an object.
REASONING_SETTINGS: Final = "chat:reasoning"
#: In the `extra` of a reasoning item: the reasoning details that a Chat client sent, if they contain only text.
REASONING_DETAILS: Final = "chat:reasoning_details"
#: In the `extra` of a request: the schema of the output format came with the type `json_object`.
JSON_OBJECT_SCHEMA: Final = "chat:json_object_schema"
#: The name of an output schema without a name, because servers require one.
DEFAULT_SCHEMA_NAME: Final = "response"


class ChatWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Differences between servers of this dialect. The `[wire]` table of a profile sets them."""

    #: The maker of the server's reasoning. Reasoning of another maker is not sent to the server (RSN-3).
    maker: str = "chat"
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: Whether the server counts the tokens of a request at `/chat/completions/input_tokens`.
    counts_tokens: bool = False
    #: The role of `developer` messages. With "kept", those of chat clients stay, because these clients know their
    #: server, and those of other clients become `system`, which every server has.
    developer: Literal["developer", "system", "kept"] = "kept"
    #: Where system messages are allowed: anywhere, or only as one first message.
    system: Literal["anywhere", "first"] = "anywhere"
    #: The content of a user message with only text: one string, or a list of parts.
    text_content: Literal["string", "parts"] = "string"
    #: The value of `content` in an assistant message that only calls tools.
    empty_content: Literal["null", "empty", "absent"] = "null"
    #: The field in which the server wants its reasoning back. With "none" it is a loss.
    reasoning_field: Literal["reasoning_content", "reasoning", "none"] = "none"
    reasoning_history: Literal["tool_loop", "all"] = "tool_loop"
    #: The reasoning of a call that has none: absent, or a blank for servers that refuse a call without reasoning.
    missing_reasoning: Literal["absent", "blank"] = "absent"
    #: The values of `reasoning_effort` that the server supports; others become the nearest one (RSN-4). Empty: all.
    efforts: tuple[ReasoningEffort, ...] = ()
    #: Whether the server takes a budget for reasoning in tokens, as `reasoning.max_tokens`.
    reasoning_budget: bool = False
    #: Think tags in the text: at its start, anywhere, with an implied opening tag, or not detected.
    think_tags: Literal["leading", "anywhere", "implied", "off"] = "leading"
    #: Images in tool results: moved into a user message after the results, or kept.
    tool_images: Literal["lift", "keep"] = "lift"
    #: Whether the server accepts images. If not, each becomes a note and a loss.
    images: bool = True
    #: Whether the server accepts videos, as `video_url`. If not, each becomes a note and a loss.
    videos: bool = False
    #: Custom tools: sent as functions with one string, or as custom tools.
    custom_tools: Literal["function", "native"] = "function"
    #: Tool outputs without a call: refuse the request, add a call, or send them as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: The structured output that the server supports. With "none" such a request is refused (REQ-1).
    json_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    #: How a tool is forced: by `tool_choice`, by a schema of the text (see `forced_tools`), or not at all.
    forced_tools: Literal["native", "schema", "none"] = "native"
    #: Whether the model may choose a tool. If not, tools are sent only if one is forced.
    free_tools: bool = True
    #: Whether function tools may have `strict`.
    strict_tools: bool = True
    #: Patterns of the types of tools that the server runs itself.
    own_tools: tuple[str, ...] = ()
    #: Patterns of models with a web search of the server. The searches of other APIs are sent to them in its form.
    web_search_models: tuple[str, ...] = ()
    #: Whether the server accepts `stream_options.include_usage`.
    stream_usage: bool = True
    #: The form of cache marks: `prompt_cache_breakpoint` on parts, `cache_control` on texts, or none (E-4).
    cache_marks: Literal["prompt_cache_breakpoint", "cache_control", "none"] = "none"
    #: Whether parts, tools and tool choices of other types are sent. The gateway sets it for chat clients, which know
    #: their server; a note replaces parts of other clients.
    native_types: bool = False
    #: Optional request fields that the server accepts. Others are reported as losses.
    fields: tuple[str, ...] = (
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "parallel_tool_calls",
        "reasoning_effort",
        "top_logprobs",
        "logprobs",
        "stop",
        "seed",
        "user",
        "metadata",
        "service_tier",
    )
    #: Fields that the hub does not have and the server accepts from clients of every dialect, such as `top_k`.
    extra_fields: tuple[str, ...] = ()
    #: Biases of tokens by their ids, the `logit_bias` of requests whose clients set none.
    token_bias: dict[str, float] = {}
    #: The longest name of a function that the server takes; longer names are replaced (REQ-8).
    max_name_length: Annotated[int, Meta(ge=16)] = 64

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether to look up reasoning that the client left out of the history."""
        return self.reasoning_field != "none"

    def can_think(self, model: str) -> bool:
        """Whether the model can be asked for reasoning."""
        del model
        return "reasoning_effort" in self.fields


def wire_after_refusal(wire: ChatWire, model: str, refused: RefusedPart) -> ChatWire | None:
    """Return the options without reasoning settings after the server refused them; None if nothing would change."""
    if refused != "thinking" or not wire.can_think(model):
        return None
    fields = tuple(field for field in wire.fields if field != "reasoning_effort")
    return replace(wire, fields=fields, reasoning_budget=False)


# Shapes of requests to servers: plain structs without unknown fields, which msgspec encodes alone.


class FunctionOut(Struct, frozen=True, kw_only=True, gc=False):
    """A function: offered, called (`arguments`) or chosen (the name alone)."""

    name: str
    description: str | UnsetType = UNSET
    parameters: JsonSchema | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class GrammarOut(Struct, frozen=True, kw_only=True, gc=False):
    syntax: str
    definition: str


class CustomFormatOut(Struct, frozen=True, kw_only=True, gc=False):
    type: Literal["text", "grammar"]
    grammar: GrammarOut | UnsetType = UNSET


class CustomOut(Struct, frozen=True, kw_only=True, gc=False):
    """A custom tool: offered, called (`input`) or chosen (the name alone)."""

    name: str
    description: str | UnsetType = UNSET
    format: CustomFormatOut | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ToolCallOut(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    type: Literal["function", "custom"] = "function"
    function: FunctionOut | UnsetType = UNSET
    custom: CustomOut | UnsetType = UNSET


class ToolOut(Struct, frozen=True, kw_only=True, gc=False):
    """A tool as it is offered, and as it is named in `tool_choice`."""

    type: Literal["function", "custom"] = "function"
    function: FunctionOut | UnsetType = UNSET
    custom: CustomOut | UnsetType = UNSET


class PartOut(Struct, frozen=True, kw_only=True, gc=False):
    type: Literal["text", "image_url", "video_url", "file", "input_audio"]
    text: str | UnsetType = UNSET
    image_url: dict[str, str] | UnsetType = UNSET
    video_url: dict[str, str] | UnsetType = UNSET
    file: dict[str, str] | UnsetType = UNSET
    input_audio: dict[str, str] | UnsetType = UNSET
    cache_control: dict[str, Any] | UnsetType = UNSET
    prompt_cache_breakpoint: Raw | UnsetType = UNSET


AnyPartOut = PartOut | Raw  # `Raw`: a part of a Chat client, as it was sent


class MessageOut(Struct, frozen=True, gc=False):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[AnyPartOut] | None | UnsetType = UNSET
    tool_calls: list[ToolCallOut] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: list[Any] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class JsonSchemaOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    description: str | UnsetType = UNSET
    schema: JsonSchema | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class ResponseFormatOut(Struct, frozen=True, kw_only=True, gc=False):
    type: Literal["json_object", "json_schema"]
    json_schema: JsonSchemaOut | UnsetType = UNSET
    schema: JsonSchema | UnsetType = UNSET  # of some servers, with the type `json_object`


class RequestOut(Struct, frozen=True, kw_only=True, gc=False):
    """The body of `POST /chat/completions`."""

    model: str | UnsetType = UNSET
    messages: list[MessageOut]
    tools: list[ToolOut] | Raw | UnsetType = UNSET
    tool_choice: ToolChoiceValue | ToolOut | Raw | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    response_format: ResponseFormatOut | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    max_completion_tokens: int | UnsetType = UNSET
    temperature: Number | UnsetType = UNSET
    top_p: Number | UnsetType = UNSET
    presence_penalty: Number | UnsetType = UNSET
    frequency_penalty: Number | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: int | UnsetType = UNSET
    reasoning_effort: str | UnsetType = UNSET
    verbosity: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    safety_identifier: str | UnsetType = UNSET
    prompt_cache_key: str | UnsetType = UNSET
    prompt_cache_retention: str | UnsetType = UNSET
    prompt_cache_options: dict[str, Any] | UnsetType = UNSET
    cache_control: dict[str, Any] | UnsetType = UNSET
    user: str | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    stream_options: dict[str, Any] | UnsetType = UNSET


# Shapes of client requests: the codec reports errors and keeps unknown fields.


class ImageUrlIn(Shape, frozen=True, kw_only=True):
    url: ImageUrl
    detail: ImageDetail | None | UnsetType = UNSET


class ImagePartIn(Shape, frozen=True, kw_only=True, tag="image_url"):
    image_url: ImageUrlIn | ImageUrl  # some clients send a bare string


class FileIn(Shape, frozen=True, kw_only=True):
    file_data: FileData | None | UnsetType = UNSET
    file_id: str | None | UnsetType = UNSET
    filename: str | None | UnsetType = UNSET


class FilePartIn(Shape, frozen=True, kw_only=True, tag="file"):
    file: FileIn


# Clients also send the text types of the hub (C-2).
TextIn = Text | InputText | OutputTextParam
TypedPartIn = TextIn | ImagePartIn | InputAudio | FilePartIn | Refusal
PlainPartIn = TypedPartIn | UnknownContent
# E-1: some clients put calls and results into the content, as in the Messages API.
PartIn = PlainPartIn | ToolUse | ToolResult


class FunctionCallIn(Shape, frozen=True, kw_only=True):
    name: str
    arguments: str | dict[str, Any]  # a string; some clients send the object itself


class CustomCallIn(Shape, frozen=True, kw_only=True):
    name: str
    input: str


class ToolCallIn(Shape, frozen=True, kw_only=True):
    """A call of a function or a custom tool. Some clients omit the type, but one of the two members is set."""

    id: str
    type: str | UnsetType = UNSET
    function: FunctionCallIn | None | UnsetType = UNSET
    custom: CustomCallIn | None | UnsetType = UNSET
    index: int | None | UnsetType = UNSET  # left over from a stream


class MessageIn(Shape, frozen=True, kw_only=True):
    """A message of any role. `history_to_hub` checks which fields the role needs."""

    role: Literal["user", "assistant", "system", "developer", "tool", "function"]
    content: Text10M | list[PartIn] | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET
    tool_calls: list[ToolCallIn] | None | UnsetType = UNSET
    tool_call_id: str | None | UnsetType = UNSET
    function_call: FunctionCallIn | None | UnsetType = UNSET
    refusal: str | None | UnsetType = UNSET
    reasoning_content: str | None | UnsetType = UNSET
    reasoning: Any = UNSET  # a string, or an object of one provider
    reasoning_details: list[dict[str, Any]] | None | UnsetType = UNSET


class FunctionIn(Shape, frozen=True, kw_only=True):
    name: ToolName
    description: str | None | UnsetType = UNSET
    parameters: JsonSchema | None | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET


class FunctionToolIn(Shape, frozen=True, kw_only=True, tag="function"):
    """C-3: in the nested form of Chat, or in the flat form of the hub."""

    function: FunctionIn | UnsetType = UNSET
    name: ToolName | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    parameters: JsonSchema | None | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET


class GrammarIn(Shape, frozen=True, kw_only=True):
    syntax: Literal["lark", "regex"]
    definition: str


class GrammarFormatIn(Shape, frozen=True, kw_only=True, tag="grammar"):
    grammar: GrammarIn


class CustomIn(Shape, frozen=True, kw_only=True):
    name: str
    description: str | None | UnsetType = UNSET
    format: TextFormatOfTool | GrammarFormatIn | None | UnsetType = UNSET


class CustomToolIn(Shape, frozen=True, kw_only=True, tag="custom"):
    """C-3: in the nested form of Chat, or in the flat form of the hub."""

    custom: CustomIn | UnsetType = UNSET
    name: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    format: TextFormatOfTool | GrammarFormat | None | UnsetType = UNSET


ToolIn = FunctionToolIn | CustomToolIn | NamespaceTool | ToolSearchTool | HostedTool | UnknownTool


class NameIn(Shape, frozen=True, kw_only=True):
    name: str


class FunctionChoiceIn(Shape, frozen=True, kw_only=True, tag="function"):
    function: NameIn | UnsetType = UNSET
    name: str | UnsetType = UNSET


class CustomChoiceIn(Shape, frozen=True, kw_only=True, tag="custom"):
    custom: NameIn | UnsetType = UNSET
    name: str | UnsetType = UNSET


class AllowedToolsIn(Shape, frozen=True, kw_only=True):
    tools: Annotated[list[FunctionChoiceIn | CustomChoiceIn | UnknownToolChoice], Meta(min_length=1, max_length=128)]
    mode: ToolChoiceValue | UnsetType = UNSET


class AllowedToolsChoiceIn(Shape, frozen=True, kw_only=True, tag="allowed_tools"):
    allowed_tools: AllowedToolsIn


# Clients of one provider send `any` for `required`.
ToolChoiceIn = (
    Literal["none", "auto", "required", "any"]
    | FunctionChoiceIn
    | CustomChoiceIn
    | AllowedToolsChoiceIn
    | UnknownToolChoice
)


class JsonSchemaIn(Shape, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    schema: JsonSchema | None | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET


class JsonSchemaFormatIn(Shape, frozen=True, kw_only=True, tag="json_schema"):
    json_schema: JsonSchemaIn


class UnknownFormat(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """An output format that only some servers have, such as a grammar."""


class RequestIn(Shape, frozen=True, kw_only=True):
    """The body of `POST /chat/completions`. Fields that the hub does not have stay in `extra`."""

    messages: Annotated[list[MessageIn], Meta(min_length=1)]
    model: str | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET
    tool_choice: ToolChoiceIn | None | UnsetType = UNSET
    functions: list[FunctionIn] | None | UnsetType = UNSET  # the form before `tools`
    function_call: Literal["none", "auto"] | NameIn | None | UnsetType = UNSET  # the form before `tool_choice`
    parallel_tool_calls: bool | None | UnsetType = UNSET
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormatIn | UnknownFormat | None | UnsetType = UNSET
    max_tokens: int | None | UnsetType = UNSET
    max_completion_tokens: int | None | UnsetType = UNSET
    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    n: Annotated[int, Meta(ge=1)] | None | UnsetType = UNSET
    logprobs: bool | None | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None | UnsetType = UNSET
    reasoning_effort: str | None | UnsetType = UNSET
    verbosity: str | None | UnsetType = UNSET
    service_tier: str | None | UnsetType = UNSET
    metadata: Metadata | None | UnsetType = UNSET
    safety_identifier: ShortKey | None | UnsetType = UNSET
    prompt_cache_key: ShortKey | None | UnsetType = UNSET
    prompt_cache_retention: str | None | UnsetType = UNSET
    prompt_cache_options: PromptCacheOptions | None | UnsetType = UNSET
    cache_control: dict[str, Any] | None | UnsetType = UNSET  # of some servers, for the whole request
    user: str | None | UnsetType = UNSET
    store: bool | None | UnsetType = UNSET
    stream: bool | None | UnsetType = UNSET
    stream_options: dict[str, Any] | None | UnsetType = UNSET


#: Types of content parts: the API's own, the forms of other APIs that clients mix in, and those of single servers:
#: documents, references, thinking, audio, video, embedded images.
PART_TYPES: Final = frozenset(
    {
        *("text", "image_url", "input_audio", "file", "refusal"),
        *("input_text", "output_text", "tool_use", "tool_result"),
        *("document_url", "reference", "thinking", "audio_url", "video_url", "image_embeds", "video", "input_video"),
    }
)
