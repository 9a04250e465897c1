"""`ServerForm` gives responses, items and events of the hub the form in which the server sent them.

The writer makes them from the content of a server's answer. A member that the server sent with another value, as null,
or not at all, gets the server's form here, and unknown members are kept (ITEM-5). Content, ids, indexes and statuses
stay as the writer decided, and so does what belongs to the gateway, such as the id of a response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.responses.response_wire import DECODE_ERRORS, string_or_number, usage_to_hub
from antiphon.dialects.responses.tools_out import NativeNames
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ClientFault
from antiphon.protocol import codec
from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import Content, LogProb, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import ContentPartDone, SummaryPartDone
from antiphon.protocol.items import Compaction, CustomToolCall, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.open_items import id_of, with_id_and_status
from antiphon.protocol.request import JsonObjectFormat, Request, TextFormat
from antiphon.protocol.response import (
    JsonSchemaFormat,
    ReasoningConfig,
    Response,
    TextConfig,
    make_initial_response,
)
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import Tool, ToolList

Members = Mapping[str, Raw]
#: Returns the new value of a member. It gets the current value and the server's value, None if the server sent none.
TakeMember = Callable[[Any, Raw | None], Any]
Seal = Callable[[str, str], str]
_S = TypeVar("_S", bound=Shape)


class ServerForm:
    """The form of one response. `seal` returns encrypted content in its envelope, for an item id (RSN-2)."""

    def __init__(self, request: Request, initial_response: Response, wire: ResponsesWire, seal: Seal) -> None:
        self._request = request
        self._initial_response = initial_response
        self._wire = wire
        self._seal = seal
        self._settings: dict[str, tuple[Raw, Any]] = {}  # the last value of each member: the server sends it repeatedly
        self._tools: tuple[Raw, list[Tool]] | None = None
        self._kept_members: list[str] | None = None

    def response(self, ours: Response, raw: Raw) -> Response:
        """The response in the form of the server's response."""
        members = decode_members(raw)
        return ours if members is None else _take_members(ours, members, self._rules_of_response(), self._settings)

    def whole_response(self, ours: Response, raw: Raw) -> Response:
        """The same for a response that was not streamed: no event has given its items their form."""
        response, members = self.response(ours, raw), decode_members(raw) or {}
        return replace(response, output=self._take_items(response.output, members.get("output")))

    def event(self, ours: _S, members: Members) -> _S:
        """The event in the form of the server's event of the same type."""
        return _take_members(ours, members, EVENT_RULES)

    def part_event(
        self, ours: ContentPartDone | SummaryPartDone, item: Raw | None
    ) -> ContentPartDone | SummaryPartDone:
        """The event with its part in the form of the server's item."""
        members = decode_members(item) if item is not None else None
        name, index = (
            ("summary", ours.summary_index) if isinstance(ours, SummaryPartDone) else ("content", ours.content_index)
        )
        parts = _decode_list(members.get(name)) if members is not None else []
        return replace(ours, part=_take_part(ours.part, parts[index])) if index < len(parts) else ours

    def item(self, ours: Item, raw: Raw) -> Item:
        """The item in the form of the server's item."""
        members: Members | None = decode_members(raw)
        if members is None or not _has_type_of(ours, members):
            return ours
        rules = ITEM_RULES.get(type(ours))
        if rules is None:
            return _take_status(ours, members)
        if isinstance(ours, Reasoning):
            members = _as_summary_item(ours, members)
            id = string_or_number(members.get("id", NULL)) or ours.id
            rules = rules | {"encrypted_content": lambda value, raw: self._take_sealed(id, value, raw)}
        return cast(Item, _take_members(cast(Shape, ours), members, rules))

    def _take_output(self, ours: list[Item], raw: Raw | None) -> list[Item]:
        """The items of a response. Items that are not streamed in parts stay as they were when they ended."""
        taken = self._take_items(ours, raw)
        return [item if type(item) in ITEM_RULES else mine for mine, item in zip(ours, taken, strict=True)]

    def _take_items(self, ours: list[Item], raw: Raw | None) -> list[Item]:
        listed = _decode_list(raw)
        if len(listed) != len(ours):
            return ours
        return [self.item(item, form) for item, form in zip(ours, listed, strict=True)]

    def _take_tools(self, ours: list[Tool], raw: Raw | None) -> list[Tool]:
        """The tools as a list that is encoded once for all events."""
        if raw is None:
            return ours
        if self._tools is None or self._tools[0] != raw:
            tools = _decode_member(ours, raw, _fields_of(Response)["tools"])
            self._tools = raw, tools if tools is ours else ToolList(tools)  # ours may be encoded
        return self._tools[1]

    def _take_sealed(self, id: str, ours: Any, raw: Raw | None) -> Any:
        """RSN-2: a server may seal the same reasoning anew in each event."""
        if raw is None:
            return ours
        sealed = msgspec.json.decode(raw)
        if isinstance(sealed, str) and sealed:
            return self._seal(sealed, id)
        return sealed if not ours and (sealed is None or sealed == "") else ours

    def _rules_of_response(self) -> dict[str, TakeMember]:
        if self._kept_members is None:
            self._kept_members = [*GATEWAY_MEMBERS, *self._changed_settings()]
            if self._request.model != self._initial_response.model:
                self._kept_members.append("model")  # the gateway has another name for it
        own_rules: dict[str, TakeMember] = {"output": self._take_output, "tools": self._take_tools}
        return RESPONSE_RULES | own_rules | dict.fromkeys(self._kept_members, _keep)

    def _changed_settings(self) -> list[str]:
        """The settings that the server did not get as the client sent them. The client gets its own back (HTTP-2)."""
        sent = make_initial_response(self._request, id="", created_at=0)
        changed = [name for name in CLIENT_SETTINGS if getattr(sent, name) != getattr(self._initial_response, name)]
        changed += [name for name in CLIENT_SETTINGS if name in self._wire.lacks]
        changed += codec.large_settings(self._initial_response)  # decoding the server's values would take long
        sends_other_tools = (
            self._wire.extension_tools == "flatten"
            or not NativeNames.for_request(self._request, self._wire.max_name_length).is_identity
        )
        return [*changed, "tools", "tool_choice"] if sends_other_tools else changed


class _Field(NamedTuple):
    name: str
    decode: Callable[[Raw], Any]
    hint: Any
    may_be_absent: bool


@cache
def _fields_of(shape: type[Shape]) -> dict[str, _Field]:
    """The fields of a shape by their names on the wire."""
    hints = get_type_hints(shape, include_extras=True)
    return {
        field.encode_name: _Field(
            field.name, msgspec.json.Decoder(hints[field.name]).decode, hints[field.name], field.default is UNSET
        )
        for field in msgspec.structs.fields(shape)
        if field.name != "extra"
    }


def _take_members(
    ours: _S, members: Members, rules: Mapping[str, TakeMember], cached: dict[str, tuple[Raw, Any]] | None = None
) -> _S:
    fields = _fields_of(type(ours))
    changes: dict[str, Any] = {}
    for wire_name, field in fields.items():
        raw = members.get(wire_name)
        current = getattr(ours, field.name)
        rule = rules.get(wire_name)
        if rule is not None:
            value = rule(current, raw)
        elif raw is None:
            value = UNSET
        else:
            value = _decode_cached(current, raw, field, wire_name, cached)
        if value is not current and (value is not UNSET or field.may_be_absent):
            changes[field.name] = value
    tag_field = ours.__struct_config__.tag_field
    extra = {name: _canonical(raw) for name, raw in members.items() if name not in fields and name != tag_field}
    if extra or ours.extra:
        changes["extra"] = extra or UNSET
    return replace(ours, **changes) if changes else ours


def _decode_cached(
    ours: Any, raw: Raw, field: _Field, wire_name: str, cached: dict[str, tuple[Raw, Any]] | None
) -> Any:
    if cached is None:
        return _decode_member(ours, raw, field)
    entry = cached.get(wire_name)
    if entry is None or entry[0] != raw:
        entry = cached[wire_name] = raw, _decode_member(ours, raw, field)
    return entry[1]


def _decode_member(ours: Any, raw: Raw, field: _Field) -> Any:
    """The server's value; the current one if the server's value has a wrong type."""
    try:
        return field.decode(raw)
    except msgspec.ValidationError:
        pass
    try:
        return codec.decode_stored(raw, field.hint)
    except ClientFault:
        members = decode_members(raw)
        if members is None or not isinstance(ours, Shape) or not _has_type_of(ours, members):
            return ours
        return _take_members(ours, members, NO_RULES)


def _take_status(ours: Item, members: Members) -> Item:
    """An item of a hosted tool or of unknown type, with the status that the server gave it, such as `searching`."""
    status = string_or_number(members.get("status", NULL))
    if status is None or status in (ItemStatus.INCOMPLETE, ItemStatus.FAILED):  # ITEM-3 decides about these
        return ours
    return with_id_and_status(ours, id_of(ours) or "", status)


def _has_type_of(ours: Any, members: Members) -> bool:
    """Whether the server's object has the type of ours, or no type."""
    tag = ours.kind if isinstance(ours, Unknown) else ours.__struct_config__.tag
    return tag is None or "type" not in members or msgspec.json.decode(members["type"]) == tag


def as_summary_event(members: Members) -> dict[str, Raw]:
    """The members of an event about open reasoning, as those of the event about the summary (RSN-4)."""
    renamed = {name: raw for name, raw in members.items() if name != "content_index"}
    return renamed | ({"part": _as_summary_part(members["part"])} if "part" in members else {})


def _as_summary_item(ours: Reasoning, members: Members) -> Members:
    """The members of an item with its content as its summary, if the client gets it so (RSN-4)."""
    forms = _decode_list(members.get("content"))
    if ours.content or not forms or len(forms) != len(ours.summary) or _decode_list(members.get("summary")):
        return members
    parts = Raw(msgspec.json.encode([_as_summary_part(form) for form in forms]))
    return {**{name: raw for name, raw in members.items() if name != "content"}, "summary": parts}


def _as_summary_part(raw: Raw) -> Raw:
    members = decode_members(raw)
    return raw if members is None else Raw(msgspec.json.encode({**members, "type": SUMMARY_TYPE}))


def decode_members(raw: bytes | Raw) -> dict[str, Raw] | None:
    """The members of an object; None if it is none."""
    try:
        return _decode_object(raw)
    except DECODE_ERRORS:
        return None


def _decode_list(raw: Raw | None) -> list[Raw]:
    try:
        return _decode_array(raw) if raw is not None else []
    except DECODE_ERRORS:
        return []


def _canonical(raw: Raw) -> Raw:
    """The same value on one line and without duplicate keys, so that all readers see the same value."""
    return Raw(msgspec.json.encode(msgspec.json.decode(raw)))


# Rules


def _keep(ours: Any, raw: Raw | None) -> Any:
    del raw
    return ours


def _keep_if_present(ours: Any, raw: Raw | None) -> Any:
    return UNSET if raw is None else ours


def _take_incomplete_details(ours: Any, raw: Raw | None) -> Any:
    members = decode_members(raw) if raw is not None else None
    return ours if ours is None or members is None else _take_members(ours, members, {"reason": _keep})


def _take_time(ours: int | None, raw: Raw | None) -> int | None:
    time = msgspec.json.decode(raw) if raw is not None else ours
    return None if time is None else int(time) if isinstance(time, int | float) else ours


def _take_text(ours: TextConfig | None, raw: Raw | None) -> TextConfig | None:
    if raw is None or raw == NULL:
        return ours if raw is None else None
    members = decode_members(raw)
    base = ours or TextConfig(format=TextFormat())
    return ours if members is None else _take_members(base, members, {"format": _take_format})


def _take_format(ours: TextFormat | JsonObjectFormat | JsonSchemaFormat, raw: Raw | None) -> Any:
    """The format of the text. Members that the specification requires are filled."""
    members = decode_members(raw) if raw is not None else None
    if members is None or raw is None:
        return ours
    is_schema = not isinstance(ours, JsonSchemaFormat) and _has_type_of(EMPTY_SCHEMA, members)
    return _decode_member(EMPTY_SCHEMA if is_schema else ours, raw, _fields_of(TextConfig)["format"])


def _take_reasoning(ours: ReasoningConfig | None, raw: Raw | None) -> ReasoningConfig | None:
    if raw is None or raw == NULL:
        return ours if raw is None else None
    members = decode_members(raw)
    return ours if members is None else _take_members(ours or EMPTY_REASONING, members, NO_RULES)


def _take_usage(ours: Any, raw: Raw | None) -> Any:
    return ours if raw is None else usage_to_hub(raw)


def _take_part(ours: Content | None, raw: Raw | None) -> Content | None:
    members = decode_members(raw) if raw is not None else None
    rules = PART_RULES.get(type(ours))
    if members is None or rules is None or not _has_type_of(ours, members):
        return ours
    return cast(Content, _take_members(cast(Shape, ours), members, rules))


def _take_parts(ours: list[Content] | None | UnsetType, raw: Raw | None) -> Any:
    if raw is None or raw == NULL:
        return ours if ours else UNSET if raw is None else None
    forms = _decode_list(raw)
    if len(forms) != len(ours or ()):
        return ours
    return [_take_part(part, form) for part, form in zip(ours or (), forms, strict=True)]


def _take_required_parts(ours: list[Content], raw: Raw | None) -> Any:
    return _take_parts(ours, raw) or ours


def _take_logprobs(ours: Any, raw: Raw | None) -> Any:
    """The log probabilities with the unknown members of the server's."""
    if not ours and raw is None:
        return UNSET
    if not ours or raw is None:
        return ours
    logprobs = _decode_member(ours, raw, _fields_of(OutputText)["logprobs"])
    return logprobs if _without_unknown_members(logprobs) == ours else ours


def _without_unknown_members(logprobs: list[LogProb]) -> list[LogProb]:
    return [
        replace(entry, extra=UNSET, top_logprobs=[replace(top, extra=UNSET) for top in entry.top_logprobs])
        for entry in logprobs
    ]


def _take_emptiness(ours: Any, raw: Raw | None) -> Any:
    """Whether an empty value is absent or null is the server's choice."""
    if ours or (raw is not None and raw != NULL):
        return ours
    return UNSET if raw is None else None


NULL: Final = Raw(b"null")
SUMMARY_TYPE: Final = Raw(b'"summary_text"')
NO_RULES: Final[dict[str, TakeMember]] = {}
#: The gateway's state: it stores and continues responses, and routes models.
GATEWAY_MEMBERS: Final = (
    "id",
    "object",
    "status",
    "error",
    "previous_response_id",
    "store",
    "background",
    "conversation",
)
#: Settings that a client gets back as it sent them, if a profile changed them for the server.
CLIENT_SETTINGS: Final = (
    "instructions",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "tools",
    "tool_choice",
    "truncation",
)
EMPTY_REASONING: Final = ReasoningConfig(effort=None, summary=None)
EMPTY_SCHEMA: Final = JsonSchemaFormat(name="response", description=None, schema=None, strict=False)
RESPONSE_RULES: Final[dict[str, TakeMember]] = {
    "incomplete_details": _take_incomplete_details,
    "usage": _take_usage,
    "text": _take_text,
    "reasoning": _take_reasoning,
    "created_at": _take_time,
    "completed_at": _take_time,
}
CALL_RULES: Final[dict[str, TakeMember]] = {
    **dict.fromkeys(("id", "call_id", "name", "arguments", "input", "status"), _keep),
    "namespace": _take_emptiness,
}
ITEM_RULES: Final[dict[type, dict[str, TakeMember]]] = {
    Message: {
        "id": _keep,
        "status": _keep,
        "role": _keep,
        "content": _take_required_parts,
        "phase": _take_emptiness,
    },
    Reasoning: {
        "id": _keep,
        "status": _keep_if_present,
        "content": _take_parts,
        "summary": _take_required_parts,
    },
    Compaction: {"id": _keep},
    FunctionCall: CALL_RULES,
    CustomToolCall: CALL_RULES,
}
PART_RULES: Final[dict[type, dict[str, TakeMember]]] = {
    OutputText: {"text": _keep, "annotations": _keep, "logprobs": _take_logprobs},
    ReasoningText: {"text": _keep},
    SummaryText: {"text": _keep},
    Refusal: {"refusal": _keep},
}
EVENT_RULES: Final[dict[str, TakeMember]] = {
    **dict.fromkeys(
        (
            "sequence_number",
            "item_id",
            "output_index",
            "content_index",
            "summary_index",
            "annotation_index",
            "annotation",
            "delta",
            "text",
            "refusal",
            "arguments",
            "input",
            "item",
            "response",
            "error",
        ),
        _keep,
    ),
    "name": _keep_if_present,
    "part": _take_part,
    "logprobs": _take_logprobs,
}
_decode_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array: Final = msgspec.json.Decoder(list[Raw]).decode
