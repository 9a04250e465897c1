"""The schemas of the OpenAPI document, generated from the protocol types, with the names of the specification."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.api.operation import Schema, schema_ref
from antiphon.dialects.responses.stream_out import ReasoningTextDelta, ReasoningTextDone
from antiphon.protocol import content, events, items, request, tools
from antiphon.protocol.base import EXTRA_NAME, UNKNOWN_TAG


def schemas_of(structs: Collection[type[Struct]]) -> dict[str, Schema]:
    """The schemas of these types, of all types in their fields, and of the named unions, by their public name."""
    root_schemas, components = msgspec.json.schema_components([*UNIONS.values(), *structs], ref_template="{name}")
    always_present_by_type = {cls.__name__: _names_always_written(cls) for cls in structs}
    unions = dict(zip(UNIONS, root_schemas, strict=False))
    union_names = {msgspec.json.encode(schema): name for name, schema in unions.items()}
    cleaner = _SchemaCleaner(union_names)
    schemas = {
        public_name(name): cleaner.clean_component(name, schema, always_present_by_type.get(name, []))
        for name, schema in components.items()
    }
    schemas |= {name: cleaner.clean_union(schema) for name, schema in unions.items()}
    schemas["LossesStreamingEvent"] = LOSSES_EVENT
    schemas["StreamingEvent"]["anyOf"].append(schema_ref("LossesStreamingEvent"))
    return dict(sorted(schemas.items()))


def public_name(name: str) -> str:
    """The name of a type in the document: that of the specification where it has one."""
    return PUBLIC_NAMES.get(name, name)


class _SchemaCleaner:
    """Converts the schemas of msgspec to those of the document."""

    def __init__(self, union_names: dict[bytes, str]) -> None:
        self._union_names = union_names

    def clean_component(self, name: str, schema: Schema, always_present: list[str]) -> Schema:
        if name in UNKNOWN_TYPES:
            return UNKNOWN_TYPES[name]
        schema = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
        if "description" in schema:
            schema["description"] = DESCRIPTIONS.get(name) or _without_requirements(schema["description"])
        if "properties" in schema:
            schema["properties"] = {
                key: self.clean_schema(value) for key, value in schema["properties"].items() if key != EXTRA_NAME
            }
            schema["required"] = [*schema["required"], *always_present]
        return schema

    def clean_schema(self, value: Any) -> Any:
        match value:
            case {"$ref": name}:
                return schema_ref(public_name(name))
            case {"anyOf": _}:
                name = self._union_names.get(msgspec.json.encode(value))
                return schema_ref(name) if name else self.clean_union(value)
            case dict():
                return {key: self.clean_schema(member) for key, member in value.items()}
            case list():
                return [self.clean_schema(member) for member in value]
            case _:
                return value

    def clean_union(self, schema: Schema) -> Schema:
        """A union. In an open union, the schema for other types excludes the known ones."""
        known_types = [tag for tag in schema.get("discriminator", {}).get("mapping", {}) if tag != UNKNOWN_TAG]
        options = []
        for option in schema["anyOf"]:
            cleaned = self.clean_schema(option)
            if option.get("$ref") in UNKNOWN_TYPES:
                cleaned = cleaned | {"properties": {"type": {"not": {"enum": known_types}}}}
            options.append(cleaned)
        return {"anyOf": options}


def _names_always_written(cls: type) -> list[str]:
    """Fields with a constant default: optional when reading, always present when writing."""
    return [
        field.encode_name
        for field in msgspec.structs.fields(cls)
        if field.default not in (msgspec.NODEFAULT, msgspec.UNSET)
    ]


def _without_requirements(text: str) -> str:
    """A docstring without the requirement ids in it."""
    text = LEADING_REQUIREMENT.sub("", TRAILING_REQUIREMENTS.sub("", text))
    return text[:1].upper() + text[1:]


REQUIREMENT: Final = r"[A-Z]+-\d+"
TRAILING_REQUIREMENTS: Final = re.compile(rf"(?<!\s)\s*+\({REQUIREMENT}(?:, {REQUIREMENT})*\)")
LEADING_REQUIREMENT: Final = re.compile(rf"^{REQUIREMENT}: ")

# Unions with a public name.
UNIONS: Final[dict[str, Any]] = {
    "ItemParam": items.ItemParam,
    "ItemField": items.Item,
    "ContentParam": content.ContentParam,
    "Content": content.Content,
    "ResponsesToolParam": tools.ToolParam,
    "Tool": tools.Tool,
    "SpecificToolChoiceParam": tools.SpecificToolChoice,
    "TextFormatParam": request.TextFormatParam,
    "StreamingEvent": events.StreamEvent | ReasoningTextDelta | ReasoningTextDone,
}
# Internal names, and the names of the specification.
PUBLIC_NAMES: Final[dict[str, str]] = {
    "InputText": "InputTextContent",
    "InputImageParam": "InputImageContentParamAutoParam",
    "InputImage": "InputImageContent",
    "InputFileParam": "InputFileContentParam",
    "InputFile": "InputFileContent",
    "InputVideo": "InputVideoContent",
    "InputAudio": "InputAudioContent",
    "UrlCitation": "UrlCitationBody",
    "OutputTextParam": "OutputTextContentParam",
    "OutputText": "OutputTextContent",
    "Text": "TextContent",
    "SummaryText": "SummaryTextContent",
    "ReasoningText": "ReasoningTextContent",
    "Refusal": "RefusalContent",
    "ItemReference": "ItemReferenceParam",
    "ReasoningParam": "ReasoningItemParam",
    "Reasoning": "ReasoningBody",
    "CompactionParam": "CompactionSummaryItemParam",
    "Compaction": "CompactionBody",
    "MessageParam": "MessageItemParam",
    "FunctionCallParam": "FunctionCallItemParam",
    "FunctionCallOutputParam": "FunctionCallOutputItemParam",
    "SpecificFunction": "SpecificFunctionParam",
    "SpecificCustom": "SpecificCustomParam",
    "AllowedTools": "AllowedToolChoice",
    "TextFormat": "TextResponseFormat",
    "JsonObjectFormat": "JsonObjectResponseFormat",
    "JsonSchemaFormatParam": "JsonSchemaResponseFormatParam",
    "JsonSchemaFormat": "JsonSchemaResponseFormat",
    "StreamOptions": "StreamOptionsParam",
    "ReasoningConfigParam": "ReasoningParam",
    "ReasoningConfig": "Reasoning",
    "TextConfig": "TextField",
    "Request": "CreateResponseBody",
    "CompactRequest": "CompactResponseMethodPublicBody",
    "Response": "ResponseResource",
    "ResponseCreated": "ResponseCreatedStreamingEvent",
    "ResponseQueued": "ResponseQueuedStreamingEvent",
    "ResponseInProgress": "ResponseInProgressStreamingEvent",
    "ResponseCompleted": "ResponseCompletedStreamingEvent",
    "ResponseFailed": "ResponseFailedStreamingEvent",
    "ResponseIncomplete": "ResponseIncompleteStreamingEvent",
    "ItemAdded": "ResponseOutputItemAddedStreamingEvent",
    "ItemDone": "ResponseOutputItemDoneStreamingEvent",
    "ContentPartAdded": "ResponseContentPartAddedStreamingEvent",
    "ContentPartDone": "ResponseContentPartDoneStreamingEvent",
    "OutputTextDelta": "ResponseOutputTextDeltaStreamingEvent",
    "OutputTextDone": "ResponseOutputTextDoneStreamingEvent",
    "AnnotationAdded": "ResponseOutputTextAnnotationAddedStreamingEvent",
    "RefusalDelta": "ResponseRefusalDeltaStreamingEvent",
    "RefusalDone": "ResponseRefusalDoneStreamingEvent",
    "ReasoningDelta": "ResponseReasoningDeltaStreamingEvent",
    "ReasoningDone": "ResponseReasoningDoneStreamingEvent",
    "ReasoningTextDelta": "ResponseReasoningTextDeltaStreamingEvent",
    "ReasoningTextDone": "ResponseReasoningTextDoneStreamingEvent",
    "SummaryPartAdded": "ResponseReasoningSummaryPartAddedStreamingEvent",
    "SummaryPartDone": "ResponseReasoningSummaryPartDoneStreamingEvent",
    "SummaryTextDelta": "ResponseReasoningSummaryDeltaStreamingEvent",
    "SummaryTextDone": "ResponseReasoningSummaryDoneStreamingEvent",
    "ArgumentsDelta": "ResponseFunctionCallArgumentsDeltaStreamingEvent",
    "ArgumentsDone": "ResponseFunctionCallArgumentsDoneStreamingEvent",
    "CustomInputDelta": "ResponseCustomToolCallInputDeltaStreamingEvent",
    "CustomInputDone": "ResponseCustomToolCallInputDoneStreamingEvent",
    "ErrorEvent": "ErrorStreamingEvent",
}
DESCRIPTIONS: Final = {
    "CreateConversation": "The body of `POST /v1/conversations`.",
    "UpdateConversation": "The body of `POST /v1/conversations/{id}`.",
    "AddItems": "The body of `POST /v1/conversations/{id}/items`.",
    "Request": "The body of `POST /v1/responses`.",
    "CompactRequest": "The body of `POST /v1/responses/compact`.",
    "CompactResource": "A compacted conversation: its output is the start of further input.",
    "Response": "The whole response. Every field is present, null if it has no value.",
    "ResponseCreated": "The first event of a stream.",
    "ResponseCompleted": "The last event of a stream that completed.",
    "ResponseFailed": "The last event of a stream that failed; `response.error` has the reason.",
    "ResponseIncomplete": "The last event of an incomplete stream; `response.incomplete_details` has the reason.",
}


def _open_object(description: str, *others: str) -> Schema:
    properties: Schema = {"type": {"type": "string"}} | {name: {"type": "integer"} for name in others}
    return {"description": description, "type": "object", "properties": properties, "required": list(properties)}


UNKNOWN_TYPES: Final[dict[str, Schema]] = {
    "UnknownItem": _open_object(
        "An item of another type: an extension, or one newer than this document. It is passed on unchanged."
    ),
    "UnknownContent": _open_object("A part of another type."),
    "UnknownAnnotation": _open_object("An annotation of another type."),
    "UnknownTool": _open_object("A tool of another type."),
    "UnknownToolChoice": _open_object("A choice of a tool of another type."),
    "UnknownEvent": _open_object("An event of another type.", "sequence_number"),
}
LOSSES_EVENT: Final[Schema] = {
    "description": "The extension event that lists losses in translation; sent only on request.",
    "type": "object",
    "properties": {
        "type": {"const": "antiphon:losses"},
        "sequence_number": {"type": "integer"},
        "losses": {"type": "array", "items": schema_ref("Loss")},
    },
    "required": ["type", "sequence_number", "losses"],
}
