"""Wire shapes of `generateContent` requests, and the options that differ between servers (`GeminiWire`).

Shapes for client requests end in `In` and are strict enough to locate an error. The model and streaming are in the URL,
never in the body. Fields that only this dialect has travel through the hub as `extra["gemini:name"]` with the API's
spelling. Those in `TOP_LEVEL_FIELDS` are members of the body, as are unknown ones with `TOP_LEVEL_PREFIX`; all others
are members of `generationConfig`. The dialect's own tools are unknown tools `{"type": "gemini:googleSearch",
"googleSearch": {…}}`; its own parts are unknown parts or items `{"type": "gemini:executableCode", "executableCode":
{…}}`. The members beside the type are sent.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from antiphon.dialects.common.output_limit import OutputLimit
from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, Text10M
from antiphon.protocol.request import ReasoningEffort
from antiphon.protocol.tools import JsonSchema

PREFIX: Final = "gemini:"
#: In the `extra` of a tool output item: the original object of a client of this dialect.
TOOL_RESPONSE_FIELD: Final = "gemini:resultObject"
#: In the `extra` of a tool output item: the original media parts of a client of this dialect, without their data. They
#: follow the first part of the output, which is the text.
RESULT_PARTS_FIELD: Final = "gemini:resultParts"
#: The prefix of ids that the hub needs for calls without ids. Servers of this dialect do not get these ids.
GENERATED_ID_PREFIX: Final = "call_gemini_"
#: In the `extra` of a reasoning item: true if a client of this dialect sent it as a thought without a signature.
THOUGHT_FIELD: Final = "gemini:thought"
#: Members of the body; every other field of this dialect is a member of `generationConfig`.
TOP_LEVEL_FIELDS: Final = frozenset(
    {"safetySettings", "cachedContent", "labels", "toolConfig", "serviceTier", "modelArmorConfig"}
)
#: The prefix of unknown members of the body, whose names might also be those of settings.
TOP_LEVEL_PREFIX: Final = "gemini:body."


class ModelLevels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thinking levels of some models: a row of a profile's `[[wire.models]]`. The first matching row is used."""

    #: Patterns of the model names that are sent upstream.
    names: tuple[str, ...]
    levels: tuple[ReasoningEffort, ...]


class GeminiWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that differ between servers of this dialect. A profile's `[wire]` table sets them."""

    #: The maker name in sealed reasoning; reasoning of another maker is never sent (RSN-3).
    maker: str = "gemini"
    #: Whether reasoning that the client left out is looked up in stored turns.
    wants_reasoning_back: bool = True
    #: Whether the server counts tokens, at `:countTokens`.
    counts_tokens: bool = True
    #: The longest name of a function that the server takes; longer names are replaced (REQ-8).
    max_name_length: Annotated[int, Meta(ge=16)] = 64
    #: System texts after the start: moved to `systemInstruction`, or sent in place as a marked user text.
    system: Literal["first", "as_user"] = "as_user"
    #: Whether the last content may be the model's, which the answer then continues. If not, a user text is added.
    ends_with_model: bool = False
    #: Whether contents of one role may follow each other. If not, those of clients of this dialect are joined too.
    consecutive_turns: bool = False
    #: Whether calls and results may have ids.
    call_ids: bool = False
    #: Whether media may be sent by URL, as `fileData`; if not, each becomes a text note and a loss.
    urls: bool = True
    #: Name prefixes of models that accept media inside a tool result. For other models, media are moved after all
    #: results.
    result_media_models: tuple[str, ...] = ()
    #: The starts of names of models whose output schemas have no `default` and no `pattern`; "": all models.
    basic_schema_models: tuple[str, ...] = ("",)
    #: Tool outputs without a call: refuse the request, add the call, or send the output as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: Schemas of tools and output: JSON schema, or narrowed to the older form of the API.
    schemas: Literal["json_schema", "openapi"] = "json_schema"
    #: Structured output: by schema, any JSON object, or none (then REQ-1 refuses).
    json_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    #: Name prefixes of models that accept functions together with structured output.
    json_with_tools: tuple[str, ...] = ("",)
    #: Patterns of models with a web search of the server. The searches of other APIs are sent to them in its form.
    web_search_models: tuple[str, ...] = ()
    #: How effort is expressed (RSN-4).
    thinking: Literal["budget", "level", "none"] = "budget"
    #: Name prefixes of models for which `thinking` does not apply: they take a level, or no thinking.
    level_models: tuple[str, ...] = ()
    unthinking_models: tuple[str, ...] = ()
    #: Name prefixes of models that always think: their budget is at least `least_budget`.
    thinking_models: tuple[str, ...] = ()
    least_budget: int = 128
    most_budget: int = 24_576
    #: The levels that the server accepts; `models` has those of single models.
    levels: tuple[ReasoningEffort, ...] = ("low", "medium", "high")
    models: tuple[ModelLevels, ...] = ()
    #: The value that replaces a missing signature of a call, and the models that refuse a call without one.
    missing_signature: str = ""
    signed_models: tuple[str, ...] = ()
    #: Optional settings that the server accepts; others are reported as losses.
    fields: tuple[str, ...] = (
        "temperature",
        "topP",
        "topK",
        "maxOutputTokens",
        "stopSequences",
        "seed",
        "presencePenalty",
        "frequencyPenalty",
        "responseLogprobs",
        "logprobs",
    )

    def can_think(self, model: str) -> bool:
        """Whether the model can be asked for reasoning."""
        return self.thinking != "none" and not model.startswith(self.unthinking_models)


# Request shapes for writing: plain structs without unknown fields, so msgspec alone encodes them.


class BlobOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    mime_type: str
    data: str


class FileDataOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    file_uri: str
    mime_type: str | UnsetType = UNSET


class FunctionCallOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    args: Raw
    id: str | UnsetType = UNSET


class FunctionResponseOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    response: Raw | dict[str, str]
    id: str | UnsetType = UNSET
    parts: list[dict[str, Any]] | UnsetType = UNSET  # media


class PartOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One of text, media, call or result, possibly with a signature."""

    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    inline_data: BlobOut | UnsetType = UNSET
    file_data: FileDataOut | UnsetType = UNSET
    function_call: FunctionCallOut | UnsetType = UNSET
    function_response: FunctionResponseOut | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class ContentOut(Struct, frozen=True, kw_only=True, gc=False):
    role: Literal["user", "model"] | UnsetType = UNSET
    parts: list[PartOut | dict[str, Raw]]  # a dict is a part of a kind that only this dialect has, sent unchanged


class FunctionDeclarationOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    name: str
    description: str | UnsetType = UNSET
    parameters: JsonSchema | UnsetType = UNSET
    parameters_json_schema: JsonSchema | UnsetType = UNSET
    # Members that only clients of this dialect set.
    response: Raw | UnsetType = UNSET
    response_json_schema: Raw | UnsetType = UNSET
    behavior: Raw | UnsetType = UNSET


class ToolOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    function_declarations: list[FunctionDeclarationOut]


class FunctionCallingConfigOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    mode: Literal["AUTO", "ANY", "NONE"]
    allowed_function_names: list[str] | UnsetType = UNSET


class ToolConfigOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    function_calling_config: FunctionCallingConfigOut


class ThinkingConfigOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    thinking_budget: int | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET
    include_thoughts: bool | UnsetType = UNSET


class GenerationConfigOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """`generationConfig`, without the members that only clients of this dialect set."""

    temperature: Number | UnsetType = UNSET
    top_p: Number | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    presence_penalty: Number | UnsetType = UNSET
    frequency_penalty: Number | UnsetType = UNSET
    response_logprobs: bool | UnsetType = UNSET
    logprobs: int | UnsetType = UNSET
    response_mime_type: str | UnsetType = UNSET
    response_schema: JsonSchema | UnsetType = UNSET
    response_json_schema: JsonSchema | UnsetType = UNSET
    thinking_config: ThinkingConfigOut | UnsetType = UNSET


class RequestOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """The body of `:generateContent` and `:streamGenerateContent`."""

    contents: list[ContentOut]
    system_instruction: ContentOut | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET  # encoded `ToolOut`s and the dialect's own tools
    tool_config: ToolConfigOut | UnsetType = UNSET
    generation_config: dict[str, Any] | UnsetType = UNSET


class BlobIn(Shape, frozen=True, kw_only=True, rename="camel"):
    mime_type: str
    data: str
    display_name: str | None | UnsetType = UNSET


class FileDataIn(Shape, frozen=True, kw_only=True, rename="camel"):
    file_uri: str
    mime_type: str | None | UnsetType = UNSET
    display_name: str | None | UnsetType = UNSET


class FunctionCallIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    args: dict[str, Any] | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET


class ResultMediaIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """Media in a tool result, beside its object."""

    inline_data: BlobIn | None | UnsetType = UNSET
    file_data: FileDataIn | None | UnsetType = UNSET


class FunctionResponseIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    response: dict[str, Any] | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET
    parts: list[ResultMediaIn] | None | UnsetType = UNSET


class PartIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """One of text, media, call or result. A kind that only servers of this dialect know is in `extra`."""

    text: Text10M | None | UnsetType = UNSET
    thought: bool | None | UnsetType = UNSET
    thought_signature: str | None | UnsetType = UNSET
    inline_data: BlobIn | None | UnsetType = UNSET
    file_data: FileDataIn | None | UnsetType = UNSET
    function_call: FunctionCallIn | None | UnsetType = UNSET
    function_response: FunctionResponseIn | None | UnsetType = UNSET


class ContentIn(Shape, frozen=True, kw_only=True, rename="camel"):
    parts: list[PartIn] | None | UnsetType = UNSET
    role: Literal["user", "model", "function", "system"] | None | UnsetType = UNSET


class FunctionDeclarationIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    description: str | None | UnsetType = UNSET
    parameters: dict[str, Any] | None | UnsetType = UNSET
    parameters_json_schema: dict[str, Any] | None | UnsetType = UNSET


class ToolIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """Function declarations. The API's own tools stand beside them, under their names, in `extra`."""

    function_declarations: list[FunctionDeclarationIn] | None | UnsetType = UNSET


class FunctionCallingConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    mode: str | None | UnsetType = UNSET
    allowed_function_names: list[str] | None | UnsetType = UNSET


class ToolConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    function_calling_config: FunctionCallingConfigIn | None | UnsetType = UNSET


class ThinkingConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    include_thoughts: bool | None | UnsetType = UNSET
    thinking_budget: int | None | UnsetType = UNSET
    thinking_level: str | None | UnsetType = UNSET


class GenerationConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """The settings that the hub has fields for. All others are in `extra`."""

    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    candidate_count: int | None | UnsetType = UNSET
    max_output_tokens: OutputLimit | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    response_logprobs: bool | None | UnsetType = UNSET
    logprobs: int | None | UnsetType = UNSET
    response_mime_type: str | None | UnsetType = UNSET
    response_schema: dict[str, Any] | None | UnsetType = UNSET
    response_json_schema: dict[str, Any] | None | UnsetType = UNSET
    thinking_config: ThinkingConfigIn | None | UnsetType = UNSET


class RequestIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """The body of `:generateContent` and `:streamGenerateContent`."""

    contents: list[ContentIn]
    system_instruction: ContentIn | list[PartIn] | str | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET
    tool_config: ToolConfigIn | None | UnsetType = UNSET
    generation_config: GenerationConfigIn | None | UnsetType = UNSET
    model: str | None | UnsetType = UNSET  # the URL decides; some clients repeat the model here
    store: bool | None | UnsetType = UNSET


def unknown_fields_of(shape: Shape) -> dict[str, Raw]:
    """The unknown fields of a shape, without nulls."""
    return {name: raw for name, raw in (shape.extra or {}).items() if bytes(raw) != b"null"}


def native_fields_of(shape: Shape) -> dict[str, Raw] | UnsetType:
    """The unknown fields of a shape by their names in the hub; UNSET if there are none."""
    return {PREFIX + name: raw for name, raw in unknown_fields_of(shape).items()} or UNSET


#: Members of which a part has one: its content.
PART_TYPES: Final = frozenset(
    {
        *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
        *("codeExecutionResult", "toolCall", "toolResponse", "audioTranscription"),
    }
)
