"""Every published schema has a counterpart among our types: the same fields, words and limits (REQ-8), and every
document that is valid by it is decoded and encoded unchanged."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final, get_args

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.generate.schema import LIMITS, Schema, alternatives, boundaries, published, smallest, valid

from antiphon.errors import ClientFault
from antiphon.protocol import content, errors, events, items, request, response, tools
from antiphon.protocol.codec import decode_as, encode
from antiphon.protocol.status import ItemStatus

COUNTERPARTS: Final[dict[str, Any]] = {
    # Content
    "InputTextContentParam": content.InputText,
    "InputTextContent": content.InputText,
    "DetailEnum": content.ImageDetail,
    "ImageDetail": content.ImageDetail,
    "InputImageContentParamAutoParam": content.InputImageParam,
    "InputImageContent": content.InputImage,
    "InputFileContentParam": content.InputFileParam,
    "InputFileContent": content.InputFile,
    "InputVideoContent": content.InputVideo,
    "UrlCitationParam": content.UrlCitationParam,
    "UrlCitationBody": content.UrlCitation,
    "Annotation": content.Annotation,
    "TopLogProb": content.TopLogProb,
    "LogProb": content.LogProb,
    "OutputTextContentParam": content.OutputTextParam,
    "OutputTextContent": content.OutputText,
    "TextContent": content.Text,
    "ReasoningSummaryContentParam": content.SummaryText,
    "SummaryTextContent": content.SummaryText,
    "ReasoningTextContent": content.ReasoningText,
    "RefusalContentParam": content.Refusal,
    "RefusalContent": content.Refusal,
    # Items
    "ItemReferenceParam": items.ItemReference,
    "ReasoningItemParam": items.ReasoningParam,
    "ReasoningBody": items.Reasoning,
    "CompactionSummaryItemParam": items.CompactionParam,
    "CompactionBody": items.Compaction,
    "UserMessageItemParam": items.MessageParam,
    "SystemMessageItemParam": items.MessageParam,
    "DeveloperMessageItemParam": items.MessageParam,
    "AssistantMessageItemParam": items.MessageParam,
    "MessageRole": items.MessageRole,
    "MessageStatus": ItemStatus,
    "Message": items.Message,
    "FunctionCallItemStatus": ItemStatus,
    "FunctionCallStatus": ItemStatus,
    "FunctionCallItemParam": items.FunctionCallParam,
    "FunctionCall": items.FunctionCall,
    "FunctionCallOutputItemParam": items.FunctionCallOutputParam,
    "FunctionCallOutputStatusEnum": ItemStatus,
    "FunctionCallOutput": items.FunctionCallOutput,
    "ItemParam": items.ItemParam,
    "ItemField": items.Item,
    # Tools
    "EmptyModelParam": tools.JsonSchema,
    "FunctionToolParam": tools.FunctionToolParam,
    "FunctionTool": tools.FunctionTool,
    "ResponsesToolParam": tools.ToolParam,
    "Tool": tools.Tool,
    "SpecificFunctionParam": tools.SpecificFunction,
    "SpecificToolChoiceParam": tools.SpecificToolChoice,
    "ToolChoiceValueEnum": tools.ToolChoiceValue,
    "AllowedToolsParam": tools.AllowedToolsParam,
    "ToolChoiceParam": tools.ToolChoiceParam,
    "FunctionToolChoice": tools.FunctionToolChoice,
    "AllowedToolChoice": tools.AllowedTools,
    # Requests
    "IncludeEnum": request.Include,
    "MetadataParam": request.Metadata,
    "VerbosityEnum": request.Verbosity,
    "TextResponseFormat": request.TextFormat,
    "JsonObjectResponseFormat": request.JsonObjectFormat,
    "JsonSchemaResponseFormatParam": request.JsonSchemaFormatParam,
    "TextFormatParam": request.TextFormatParam,
    "TextParam": request.TextParam,
    "StreamOptionsParam": request.StreamOptions,
    "ReasoningEffortEnum": request.ReasoningEffort,
    "ReasoningSummaryEnum": request.ReasoningSummary,
    "ReasoningParam": request.ReasoningConfigParam,
    "TruncationEnum": request.Truncation,
    "ServiceTierEnum": request.ServiceTier,
    "CreateResponseBody": request.Request,
    "CompactResponseMethodPublicBody": request.CompactRequest,
    # Responses
    "IncompleteDetails": response.IncompleteDetails,
    "JsonSchemaResponseFormat": response.JsonSchemaFormat,
    "TextField": response.TextConfig,
    "Reasoning": response.ReasoningConfig,
    "InputTokensDetails": response.InputTokensDetails,
    "OutputTokensDetails": response.OutputTokensDetails,
    "Usage": response.Usage,
    "ResponseResource": response.Response,
    "CompactResource": response.CompactResource,
    # Errors
    "Error": errors.Error,
    "ErrorPayload": errors.ErrorPayload,
    # Events
    "ResponseCreatedStreamingEvent": events.ResponseCreated,
    "ResponseQueuedStreamingEvent": events.ResponseQueued,
    "ResponseInProgressStreamingEvent": events.ResponseInProgress,
    "ResponseCompletedStreamingEvent": events.ResponseCompleted,
    "ResponseFailedStreamingEvent": events.ResponseFailed,
    "ResponseIncompleteStreamingEvent": events.ResponseIncomplete,
    "ResponseOutputItemAddedStreamingEvent": events.ItemAdded,
    "ResponseOutputItemDoneStreamingEvent": events.ItemDone,
    "ResponseReasoningSummaryPartAddedStreamingEvent": events.SummaryPartAdded,
    "ResponseReasoningSummaryPartDoneStreamingEvent": events.SummaryPartDone,
    "ResponseContentPartAddedStreamingEvent": events.ContentPartAdded,
    "ResponseContentPartDoneStreamingEvent": events.ContentPartDone,
    "ResponseOutputTextDeltaStreamingEvent": events.OutputTextDelta,
    "ResponseOutputTextDoneStreamingEvent": events.OutputTextDone,
    "ResponseRefusalDeltaStreamingEvent": events.RefusalDelta,
    "ResponseRefusalDoneStreamingEvent": events.RefusalDone,
    "ResponseReasoningDeltaStreamingEvent": events.ReasoningDelta,
    "ResponseReasoningDoneStreamingEvent": events.ReasoningDone,
    "ResponseReasoningSummaryDeltaStreamingEvent": events.SummaryTextDelta,
    "ResponseReasoningSummaryDoneStreamingEvent": events.SummaryTextDone,
    "ResponseOutputTextAnnotationAddedStreamingEvent": events.AnnotationAdded,
    "ResponseFunctionCallArgumentsDeltaStreamingEvent": events.ArgumentsDelta,
    "ResponseFunctionCallArgumentsDoneStreamingEvent": events.ArgumentsDone,
    "ErrorStreamingEvent": events.ErrorEvent,
}

# REQ-8: limits of the schema that are for what servers get. Clients may use longer names and ids.
LIMITS_OF_SERVERS: Final = {
    ("FunctionCallItemParam", "call_id", "maxLength"),
    ("FunctionCallItemParam", "name", "maxLength"),
    ("FunctionCallItemParam", "name", "pattern"),
    ("FunctionCallOutputItemParam", "call_id", "maxLength"),
    ("FunctionToolParam", "name", "maxLength"),
    ("FunctionToolParam", "name", "pattern"),
}
# A request or an error body with a `type` beside it: `api/responses_websocket` reads and writes them, and its tests
# cover them.
WEBSOCKET_MESSAGES: Final = {"WebSocketResponseCreateEvent", "WebSocketErrorEvent"}

# Words that real clients and servers use and the schema does not list; an enum that is not here has exactly the
# schema's words.
WORDS_BEYOND: Final[dict[str, set[str]]] = {
    "DetailEnum": {"original"},
    "ImageDetail": {"original"},
    "ReasoningEffortEnum": {"minimal", "max"},  # the schema describes `minimal` but does not list it
    "ServiceTierEnum": {"scale", "fast", "ultrafast"},
    "MessageStatus": {"failed"},  # ITEM-2: extension items may fail, and items have one status type
    "FunctionCallItemStatus": {"failed"},
    "FunctionCallStatus": {"failed"},
    "FunctionCallOutputStatusEnum": {"failed"},
}

# Required fields that may be absent when decoding, because they have only one value; they are always encoded.
IMPLIED: Final = {
    "type": "a struct is of its type; where several may stand, `test_a_missing_type_is_asked_for` asks for it",
    "object": "the object of a route",
}


@pytest.fixture(autouse=True)
def schemas() -> dict[str, Schema]:
    return published()


def test_every_published_schema_has_a_counterpart(schemas: dict[str, Schema]) -> None:
    assert len(schemas) == 108
    assert COUNTERPARTS.keys() | WEBSOCKET_MESSAGES == schemas.keys()


def test_events_are_the_24_published_ones_and_those_of_custom_tools() -> None:
    """B-2."""
    published_ones = set(events.TYPE_OF_EVENT) & set(COUNTERPARTS.values())
    assert len(published_ones) == 24
    assert set(events.TYPE_OF_EVENT) - published_ones == {events.CustomInputDelta, events.CustomInputDone}


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_counterparts_have_every_field_and_enum_word(name: str, schemas: dict[str, Schema]) -> None:
    if "enum" in schemas[name]:
        assert words_of(COUNTERPARTS[name]) == set(schemas[name]["enum"]) | WORDS_BEYOND.get(name, set())
    for plain in objects(schemas[name]):
        struct = COUNTERPARTS[name]
        tag = struct.__struct_config__.tag
        fields = {field.encode_name for field in msgspec.structs.fields(struct)} | ({"type"} if tag else set())
        assert plain["properties"].keys() <= fields
        if tag:
            assert words(plain["properties"]["type"]) == {tag}


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_counterparts_require_every_required_field(name: str, schemas: dict[str, Schema]) -> None:
    for plain in objects(schemas[name]):
        whole = smallest(plain)
        read(whole, name)
        for field in set(plain.get("required", ())) - IMPLIED.keys():
            with pytest.raises(ClientFault) as refused:
                read({key: value for key, value in whole.items() if key != field}, name)
            assert (refused.value.code, refused.value.param) == ("missing_field", field)


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_unknown_enum_words_are_refused_with_their_path(name: str, schemas: dict[str, Schema]) -> None:
    for plain in objects(schemas[name]):
        for field, value in plain["properties"].items():
            options = alternatives(value)
            if all(option.get("type") in ("string", "null") for option in options) and any(
                "enum" in option for option in options
            ):
                with pytest.raises(ClientFault) as refused:
                    read(smallest(plain) | {field: "no such word"}, name)
                assert (refused.value.code, refused.value.param) == ("invalid_value", field)


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTERPARTS)
def test_schema_limits_are_exact(name: str, schemas: dict[str, Schema]) -> None:
    """REQ-8."""
    for plain in objects(schemas[name]):
        for field in plain["properties"]:
            for word, good, bad in boundaries(plain["properties"][field]):
                read(smallest(plain) | {field: good}, name)
                if (name, field, word) in LIMITS_OF_SERVERS:
                    read(smallest(plain) | {field: bad}, name)
                    continue
                with pytest.raises(ClientFault) as refused:
                    read(smallest(plain) | {field: bad}, name)
                assert (refused.value.code, refused.value.param) == ("invalid_value", field), word


def test_metadata_limits_name_the_offending_pair(schemas: dict[str, Schema]) -> None:
    """REQ-8: at most 16 pairs, values of 512, and keys of 64, which the schema only says in its description."""
    limits = schemas["MetadataParam"]
    assert (limits["maxProperties"], limits["additionalProperties"]["maxLength"]) == (16, 512)
    read({"metadata": {f"{n:064}": "v" * 512 for n in range(16)}}, "CreateResponseBody")
    for metadata, path in (
        ({"k": "v" * 513}, "metadata.k"),
        ({"k" * 65: "v"}, "metadata"),
        ({str(n): "" for n in range(17)}, "metadata"),
    ):
        with pytest.raises(ClientFault) as refused:
            read({"metadata": metadata}, "CreateResponseBody")
        assert refused.value.param == path


def test_every_schema_limit_is_tested(schemas: dict[str, Schema]) -> None:
    """The limits are on the properties of named objects, and in metadata; the tests above would miss one elsewhere."""
    total = sum(len(LIMITS & node.keys()) for node in nodes(schemas))
    on_properties = sum(
        len(LIMITS & plain.keys())
        for schema in schemas.values()
        for part in schema.get("allOf", [schema])
        for value in part.get("properties", {}).values()
        for plain in inline(value)
    )
    assert total == on_properties + len({"maxProperties", "maxLength"})  # those of metadata


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTERPARTS)
@settings(max_examples=10)
@given(data=st.data())
def test_valid_documents_are_decoded_and_encoded_unchanged(name: str, data: st.DataObject) -> None:
    document = data.draw(valid(name))
    limit = document.get("max_output_tokens") if isinstance(document, dict) else None
    assume(not isinstance(limit, int) or limit < 2**31)  # the specification has no upper limit
    assert json.loads(encode(read(document, name))) == document


@pytest.mark.parametrize(
    "name",
    [
        "ItemParam",
        "ItemField",
        "ResponsesToolParam",
        "Tool",
        "SpecificToolChoiceParam",
        "TextFormatParam",
        "Annotation",
    ],
)
@given(data=st.data())
@settings(max_examples=20)
def test_missing_type_is_refused_where_several_types_are_allowed(name: str, data: st.DataObject) -> None:
    document = data.draw(valid(name))
    document.pop("type")
    if (
        "role" in document
        or document.keys() == {"id"}
        or (name == "TextFormatParam" and document.keys() & {"name", "schema"})
    ):
        read(document, name)  # ITEM-8, and objects whose type the specification makes optional
        return
    with pytest.raises(ClientFault) as refused:
        read(document, name)
    assert (refused.value.code, refused.value.param) == ("missing_field", "type")


def read(document: Any, name: str) -> Any:
    return decode_as(json.dumps(document, ensure_ascii=False).encode(), COUNTERPARTS[name])


def objects(schema: Schema) -> list[Schema]:
    """The schema itself if it is an object with properties; the options of a choice are tested under their own
    names."""
    is_choice = "oneOf" in schema or "anyOf" in schema
    return [] if is_choice else [plain for plain in alternatives(schema) if plain.get("properties")]


def words_of(counterpart: Any) -> set[str]:
    is_enum = isinstance(counterpart, type) and issubclass(counterpart, StrEnum)
    return {word.value for word in counterpart} if is_enum else set(get_args(counterpart))


def words(schema: Schema) -> set[str]:
    return {word for plain in alternatives(schema) for word in plain.get("enum", ())}


def inline(schema: Schema) -> list[Schema]:
    """The content of a property itself, references not followed."""
    options = [option for word in ("anyOf", "oneOf", "allOf") for option in schema.get(word, ())]
    return [plain for option in options for plain in inline(option)] or [schema]


def nodes(value: Any) -> list[dict[str, Any]]:
    match value:
        case dict():
            return [value, *(node for member in value.values() for node in nodes(member))]
        case list():
            return [node for member in value for node in nodes(member)]
        case _:
            return []
