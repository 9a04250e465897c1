"""The shapes of `generateContent` requests as they are sent, and what differs between its servers (`GeminiWire`).

The model and whether the answer streams stand in the address, never in the body. Fields that only this dialect knows travel through
the hub as `extra["gemini:name"]`, `name` as the API spells it: those in `TOP_LEVEL_FIELDS` stand at the top of the body,
all others in `generationConfig`. Its own tools are unknown tools `{"type": "gemini:googleSearch", "googleSearch": {…}}`, its
own parts unknown parts or items `{"type": "gemini:executableCode", "executableCode": {…}}`: what stands beside the type is sent.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.protocol.content import Number
from antiphon.protocol.request import ReasoningEffort
from antiphon.protocol.tools import JsonSchema

PREFIX: Final = "gemini:"
#: Where a tool output of a client of this dialect keeps the object it came as: a field in the `extra` of the output item.
TOOL_RESPONSE_FIELD: Final = "gemini:response"
#: Fields of the body itself; every other field of this dialect's own is one of `generationConfig`.
TOP_LEVEL_FIELDS: Final = frozenset({"safetySettings", "cachedContent", "labels", "toolConfig", "serviceTier"})


class GeminiWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between servers of this dialect. A profile's `[wire]` table fills it."""

    #: Who seals its reasoning: what another maker sealed is never sent (RSN-3).
    maker: str = "gemini"
    #: Whether what a client left out of its reasoning is looked up where turns are kept.
    wants_reasoning_back: bool = True
    #: Whether it counts the tokens of a request, at `:countTokens`.
    counts_tokens: bool = True
    #: System texts after the beginning: gathered in `systemInstruction`, or told in their place as a marked text of the user's.
    system: Literal["first", "as_user"] = "as_user"
    #: Whether the model may have the last word, which it then goes on with; if not, the user is made to ask for more.
    ends_with_model: bool = False
    #: Whether calls and results may have ids.
    call_ids: bool = False
    #: Whether media by their address may be sent, as `fileData`; if not, each becomes a note and a loss.
    urls: bool = True
    #: Media in tool results: kept inside them, or lifted behind the whole block of results.
    images_in_results: bool = False
    #: Tool outputs whose call is nowhere: refuse, make up the call, or send as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: Schemas of tools and output: JSON schema as it is, or narrowed to the older form of the API.
    schemas: Literal["json_schema", "openapi"] = "json_schema"
    #: Whether it has structured output by schema, any JSON, or none (then REQ-1 refuses).
    json_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    #: Models that take functions and structured output together, by the beginnings of their names.
    json_with_tools: tuple[str, ...] = ("",)
    #: How effort is told (RSN-4).
    thinking: Literal["budget", "level", "none"] = "budget"
    #: Models that are told otherwise than `thinking` says, by the beginnings of their names.
    level_models: tuple[str, ...] = ()
    unthinking_models: tuple[str, ...] = ()
    #: Models that cannot do without thinking: a budget is never less than `least_budget`.
    thinking_models: tuple[str, ...] = ()
    least_budget: int = 128
    most_budget: int = 24_576
    levels: tuple[ReasoningEffort, ...] = ("low", "high")
    #: What stands for the signature of a call that has none, and the models that refuse a call without.
    missing_signature: str = ""
    signed_models: tuple[str, ...] = ()
    #: Optional settings that the server has a place for; others are reported as lost.
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


# Requests, as we send them: plain structs with no room for unknown fields, so msgspec alone may write them.


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


class ResultMediaOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Media inside a tool result: by data alone."""

    inline_data: BlobOut


class FunctionResponseOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    response: Raw | dict[str, str]
    id: str | UnsetType = UNSET
    parts: list[ResultMediaOut] | UnsetType = UNSET


class PartOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One of text, media, a call, a result; a signature may stand beside any."""

    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    inline_data: BlobOut | UnsetType = UNSET
    file_data: FileDataOut | UnsetType = UNSET
    function_call: FunctionCallOut | UnsetType = UNSET
    function_response: FunctionResponseOut | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class ContentOut(Struct, frozen=True, kw_only=True, gc=False):
    role: Literal["user", "model"] | UnsetType = UNSET
    parts: list[PartOut | dict[str, Raw]]  # a part of the dialect's own kind is sent as it came


class FunctionDeclarationOut(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    name: str
    description: str | UnsetType = UNSET
    parameters: JsonSchema | UnsetType = UNSET
    parameters_json_schema: JsonSchema | UnsetType = UNSET
    # What only clients of this dialect say of a function.
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
    """`generationConfig`, without what only clients of this dialect set."""

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
    tools: Raw | UnsetType = UNSET  # of `ToolOut`, and the dialect's own as they came
    tool_config: ToolConfigOut | UnsetType = UNSET
    generation_config: dict[str, Any] | UnsetType = UNSET
