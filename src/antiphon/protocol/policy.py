"""Enforces the settings of a request on the hub's events, whatever the upstream sends.

Withholds calls that the request forbids, removes fields that are sent only on request, and pads deltas if the request
asks for it. The result is a valid stream, numbered without gaps, with a consistent terminal response; a caller that
does not stream folds it. Only function and custom calls are checked: an item of a hosted tool reports a call that was
already made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import is_
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.protocol.content import Content, OutputText, Refusal
from antiphon.protocol.events import (
    RESPONSE_EVENTS,
    ArgumentsDelta,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    DeltaEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseIncomplete,
    StreamEvent,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.items import (
    ApplyPatchCall,
    CodeInterpreterCall,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Message,
    Reasoning,
    ShellCall,
    WebSearchCall,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ENCRYPTED_IF_ANY, Request
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.status import ResponseStatus
from antiphon.protocol.tools import AllowedToolsParam, SpecificCustom, SpecificFunction, SpecificToolChoice

PaddingSource = Callable[[int], str]
# A tool in a tool choice: kind, namespace, name. The key of a whole namespace has no name.
_ToolKey = tuple[str, str | None, str | None]


class Policy:
    """The policy of one response. Feed it every event in order and deliver the events that it returns."""

    __slots__ = (
        "_allowed_tools",
        "_checks_client_tools",
        "_has_call",
        "_has_refused_call",
        "_include",
        "_is_limited_to_one_call",
        "_pad",
        "_passes_padding",
        "_passes_plain_deltas",
        "_withheld_event_count",
        "_withheld_ids",
        "_withheld_indexes",
        "losses",
    )

    def __init__(
        self,
        allowed_tools: frozenset[_ToolKey] | None,
        is_limited_to_one_call: bool,
        include: frozenset[str],
        pad: PaddingSource | None,
        passes_padding: bool,
        checks_client_tools: bool = False,
    ) -> None:
        self.losses = Losses()
        self._allowed_tools = allowed_tools
        self._checks_client_tools = checks_client_tools  # whether calls of `shell` and the like were functions
        self._is_limited_to_one_call = is_limited_to_one_call
        self._include = include
        self._pad = pad
        self._passes_padding = passes_padding  # whether deltas keep the padding of the upstream
        self._has_call = False
        self._has_refused_call = False
        self._withheld_indexes: list[int] = []  # output indexes, ascending because items are announced in order
        self._withheld_ids: set[str] = set()
        self._withheld_event_count = 0
        self._passes_plain_deltas = pad is None  # until a call is withheld, plain deltas pass unchanged

    @classmethod
    def for_request(
        cls, request: Request, *, pad: PaddingSource | None = None, checks_client_tools: bool = False
    ) -> Policy:
        """The policy for a request; `pad` makes padding for a delta of a given length (STR-13). With
        `checks_client_tools`, calls of tools that the client runs are checked too: the server had functions for them
        (TOOL-8)."""
        include_padding = request.stream_options.include_obfuscation if request.stream_options else UNSET
        wants_padding = include_padding is True
        include = frozenset(request.include or ())
        if request.top_logprobs:
            include |= {LOGPROBS}
        if ENCRYPTED_IF_ANY in include:
            include |= {ENCRYPTED_REASONING}
        policy = cls(
            _allowed_tools_of(request),
            request.parallel_tool_calls is False,
            include,
            pad if wants_padding else None,
            passes_padding=include_padding is not False,
            checks_client_tools=checks_client_tools,
        )
        if wants_padding and pad is None:
            policy.losses.add(
                "stream_options.include_obfuscation", "deltas are not padded", "no source of padding is configured"
            )
        return policy

    @property
    def passes_plain_deltas(self) -> bool:
        """Whether plain deltas pass unchanged at the moment."""
        return self._passes_plain_deltas

    def feed(self, event: StreamEvent) -> list[StreamEvent]:
        """The events to deliver for `event`: usually the event itself, none if it belongs to a withheld call."""
        # The hot path of every stream: no copy and no further checks. Types are compared directly, because a negative
        # `isinstance` check of a shape takes six times as long.
        kind = type(event)
        any_event: Any = event
        if (
            self._passes_plain_deltas
            and kind in DELTA_TYPES
            and (any_event.obfuscation is UNSET or self._passes_padding)
        ):
            if kind is not OutputTextDelta or not any_event.logprobs:
                return [event]
        elif kind is ItemAdded:
            self._check_call(any_event)
        if self._withheld_indexes and self._concerns_withheld_call(event):
            self._withheld_event_count += 1
            return []
        if kind is UnknownEvent:
            return [self._renumber_raw(any_event) if self._withheld_event_count else event]
        event = self._trim_event(kind, any_event)
        if self._withheld_event_count:
            event = replace(event, **self._renumber_changes(event))
        if (
            self._has_refused_call
            and type(event) is ResponseCompleted
            and not any(map(_has_content, event.response.output))
        ):
            return [self._end_incomplete(event)]
        return [event]

    def apply_to_response(self, response: Response) -> Response:
        """Applies the policy to a response that was not streamed: the fold of the events to deliver (STR-14)."""
        if len(response.output) == 1 and self._is_plain_text(response.output[0]):  # the common case
            return response
        # A cancelled response was checked while it was streamed, and `replay_response` cannot end its stream.
        if response.status != ResponseStatus.CANCELLED and any(type(item) in CALL_TYPES for item in response.output):
            return fold_events(
                delivered_event for event in replay_response(response) for delivered_event in self.feed(event)
            )
        return self._trim_response(response)  # no calls to check: the same result without a stream

    def _is_plain_text(self, item: Item) -> bool:
        """Whether the item is one text without fields to remove."""
        if type(item) is not Message or len(item.content) != 1:
            return False
        part = item.content[0]
        return type(part) is OutputText and not part.logprobs

    def without_withheld_items(self, response: Response) -> Response:
        """The response without withheld calls. Fields that the client did not ask for are kept."""
        if not self._withheld_indexes:
            return response
        return replace(
            response, output=[item for index, item in enumerate(response.output) if index not in self._withheld_indexes]
        )

    def trim_stored_item(self, item: Item) -> Item:
        """A stored item without the fields that the client did not ask for when it reads the item."""
        include = self._include
        match item:
            case WebSearchCall(action={"sources": _, **action}) if "web_search_call.action.sources" not in include:
                return replace(item, action=action)
            case FileSearchCall(results=list()) if "file_search_call.results" not in include:
                return replace(item, results=None)
            case CodeInterpreterCall(outputs=list()) if "code_interpreter_call.outputs" not in include:
                return replace(item, outputs=None)
            case _:
                return self._trim_item(item)

    def _trim_item(self, item: Item) -> Item:
        """An item of the answer without seals and log probabilities that the client did not ask for. The results of
        hosted tools stay: the gateway asks for them only if the client does, so the server decided to send them."""
        match item:
            case Message():
                content = [self._trim_part(part) for part in item.content]
                return item if all(map(is_, content, item.content)) else replace(item, content=content)
            case Reasoning(encrypted_content=str()) if ENCRYPTED_REASONING not in self._include:  # RSN-2
                return replace(item, encrypted_content=UNSET)
            case _:
                return item

    # Calls

    def _check_call(self, event: ItemAdded) -> None:
        """TOOL-3, TOOL-4: withholds an announced call that is not allowed."""
        match event.item:
            case FunctionCall(id=id, namespace=namespace, name=name):
                key: _ToolKey = ("function", namespace or None, name)
            case CustomToolCall(id=id, namespace=namespace, name=name):
                key = ("custom", namespace or None, name)
            case ApplyPatchCall(id=str() as id) | LocalShellCall(id=str() as id) | ShellCall(id=str() as id) if (
                self._checks_client_tools
            ):
                name = KIND_OF_CLIENT_CALL[type(event.item)]
                key = (name, "", None)
            case _:
                return
        tools = self._allowed_tools
        if tools is not None and key not in tools and ("namespace", key[1], None) not in tools:
            self._has_refused_call = True
            reason = "tool_choice does not allow it"
        elif self._is_limited_to_one_call and self._has_call:
            reason = "parallel_tool_calls is false, and the response already has a call"
        else:
            self._has_call = True
            return
        self._withheld_indexes.append(event.output_index)
        self._withheld_ids.add(id)
        self._passes_plain_deltas = False
        self.losses.add(f"output[{event.output_index}]", f"the call of {name!r} is withheld", reason)

    def _concerns_withheld_call(self, event: StreamEvent) -> bool:
        if isinstance(event, UnknownEvent):
            index = _output_index_of(event)
            return index in self._withheld_indexes or event.string_member("item_id") in self._withheld_ids
        return getattr(event, "output_index", None) in self._withheld_indexes

    def _end_incomplete(self, event: ResponseCompleted) -> ResponseIncomplete:
        """TOOL-3: ends a response that has nothing but withheld calls. A failure would make SDKs retry."""
        response = replace(
            event.response,
            status=ResponseStatus.INCOMPLETE,
            completed_at=None,
            incomplete_details=IncompleteDetails(reason=TOOL_NOT_ALLOWED),
        )
        return ResponseIncomplete(sequence_number=event.sequence_number, response=response)

    # Numbers

    def _renumber_changes(self, event: StreamEvent) -> dict[str, Any]:
        """STR-5: the new numbers of an event after withheld events."""
        changes: dict[str, Any] = {"sequence_number": event.sequence_number - self._withheld_event_count}
        index: int | None = getattr(event, "output_index", None)
        if index is not None:
            changes["output_index"] = self._shift_index(index)
        return changes

    def _shift_index(self, index: int) -> int:
        return index - bisect_left(self._withheld_indexes, index)

    def _renumber_raw(self, event: UnknownEvent) -> UnknownEvent:
        number = event.sequence_number - self._withheld_event_count
        members: dict[str, Any] = {**event.raw_members(), "sequence_number": number}
        index = _output_index_of(event)
        if index is not None:
            members["output_index"] = self._shift_index(index)
        return UnknownEvent(kind=event.kind, raw=Raw(msgspec.json.encode(members)), sequence_number=number)

    # Fields that are sent only on request. Removing them is no loss.

    def _trim_event(self, kind: type, event: Any) -> StreamEvent:
        """The event without these fields: the same object if it has none."""
        changed: StreamEvent = event
        if kind in RESPONSE_EVENTS:
            response = self._trim_response(event.response)
            if response is not event.response:
                changed = replace(event, response=response)
        elif kind is ItemAdded or kind is ItemDone:
            item = self._trim_item(event.item) if event.item is not None else None
            if item is not event.item:
                changed = replace(event, item=item)
        elif kind is ContentPartAdded or kind is ContentPartDone:
            part = self._trim_part(event.part)
            if part is not event.part:
                changed = replace(event, part=part)
        elif kind is OutputTextDone:
            if event.logprobs and LOGPROBS not in self._include:
                changed = replace(event, logprobs=[])
        elif kind in DELTA_TYPES:
            changed = self._trim_delta(event)
        return changed

    def _trim_delta(self, event: DeltaEvent) -> DeltaEvent:
        """STR-13: padding if requested, none if refused, else what the upstream sent. STR-12: logprobs if requested."""
        changes: dict[str, Any] = {}
        if event.obfuscation is UNSET:
            if self._pad is not None:
                changes["obfuscation"] = self._pad(len(event.delta))
        elif not self._passes_padding:
            changes["obfuscation"] = UNSET
        if isinstance(event, OutputTextDelta) and event.logprobs and LOGPROBS not in self._include:
            changes["logprobs"] = []
        return replace(event, **changes) if changes else event

    def _trim_response(self, response: Response) -> Response:
        if not response.output:
            return response
        visible_items = [item for index, item in enumerate(response.output) if index not in self._withheld_indexes]
        output = [self._trim_item(item) for item in visible_items]
        is_unchanged = len(output) == len(response.output) and all(map(is_, output, response.output))
        return response if is_unchanged else replace(response, output=output)

    def _trim_part(self, part: Content) -> Content:
        match part:
            case OutputText(logprobs=[_, *_]) if LOGPROBS not in self._include:  # STR-12
                return replace(part, logprobs=[])
            case _:
                return part


def _allowed_tools_of(request: Request) -> frozenset[_ToolKey] | None:
    """The tools that may be called, None if the request allows all (TOOL-2, TOOL-3)."""
    match request.tool_choice:
        case "none" | AllowedToolsParam(mode="none"):
            return frozenset()
        case AllowedToolsParam(tools=tools):
            return frozenset(map(_tool_key, tools))
        case SpecificFunction() | SpecificCustom() as choice:
            return frozenset({_tool_key(choice)})
        case _:
            return None


def _tool_key(choice: SpecificToolChoice) -> _ToolKey:
    match choice:
        case SpecificFunction():
            return ("function", choice.namespace or None, choice.name)
        case SpecificCustom():
            return ("custom", choice.namespace or None, choice.name)
        case _:  # a whole namespace, or a hosted tool, which matches no call
            return (choice.kind, choice.string_member("name") or "", None)


def _has_content(item: Item) -> bool:
    """Whether a client can use this item as an answer: reasoning and empty messages are none."""
    match item:
        case Reasoning():
            return False
        case Message(content=content):
            return not all(map(_is_empty, content))
        case _:
            return True


def _is_empty(part: Content) -> bool:
    match part:
        case OutputText(text="") | Refusal(refusal=""):
            return True
        case _:
            return False


def _output_index_of(event: UnknownEvent) -> int | None:
    index = msgspec.json.decode(event.raw_members().get("output_index", Raw(b"null")))
    return index if isinstance(index, int) else None


DELTA_TYPES: Final[frozenset[type]] = frozenset(
    {OutputTextDelta, ReasoningDelta, ArgumentsDelta, CustomInputDelta, SummaryTextDelta, RefusalDelta}
)
CALL_TYPES: Final[tuple[type, ...]] = (FunctionCall, CustomToolCall, ApplyPatchCall, LocalShellCall, ShellCall)
KIND_OF_CLIENT_CALL: Final[dict[type, str]] = {
    ApplyPatchCall: "apply_patch",
    LocalShellCall: "local_shell",
    ShellCall: "shell",
}
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
TOOL_NOT_ALLOWED: Final = "tool_not_allowed"  # `incomplete_details.reason`
LOGPROBS: Final = "message.output_text.logprobs"
