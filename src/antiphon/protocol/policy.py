"""Enforces the settings of a request on the hub's events, whatever the upstream sends.

Withholds calls that the request forbids, removes fields that are sent only on request, and pads deltas if the request
asks for it. The result is a valid stream, numbered without gaps, with a consistent terminal response; a caller that
does not stream folds it. Only function and custom calls are checked: an item of a hosted tool reports a call that was
already made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.errors import ApiError
from antiphon.protocol.content import Content, OutputText, Refusal
from antiphon.protocol.errors import Error, error_payload
from antiphon.protocol.events import (
    RESPONSE_EVENTS,
    ArgumentsDelta,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    DeltaEvent,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseFailed,
    StreamEvent,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.fold import fold, replay
from antiphon.protocol.items import (
    CodeInterpreterCall,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    Item,
    Message,
    Reasoning,
    WebSearchCall,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ENCRYPTED_IF_ANY, Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.protocol.tools import AllowedToolsParam, SpecificCustom, SpecificFunction, SpecificToolChoice

PaddingSource = Callable[[int], str]
# A tool in a tool choice: kind, namespace, name. The key of a whole namespace has no name.
_ToolKey = tuple[str, str | None, str | None]


class Policy:
    """The policy of one response. Feed it every event in order and deliver the events that it returns."""

    __slots__ = (
        "_allowed",
        "_has_call",
        "_idle",
        "_include",
        "_one_call",
        "_pad",
        "_refused",
        "_withheld",
        "_withheld_events",
        "_withheld_ids",
        "losses",
    )

    def __init__(
        self, allowed: frozenset[_ToolKey] | None, one_call: bool, include: frozenset[str], pad: PaddingSource | None
    ) -> None:
        self.losses = Losses()
        self._allowed = allowed
        self._one_call = one_call
        self._include = include
        self._pad = pad
        self._has_call = False
        self._refused: list[str] = []
        self._withheld: list[int] = []  # output indexes, ascending because items are announced in order
        self._withheld_ids: set[str] = set()
        self._withheld_events = 0  # the number of withheld events
        self._idle = pad is None  # until a call is withheld, plain deltas pass unchanged

    @classmethod
    def for_request(cls, request: Request, *, pad: PaddingSource | None = None) -> Policy:
        """The policy for a request; `pad` makes padding for a delta of a given length (STR-13)."""
        wants_padding = bool(request.stream_options and request.stream_options.include_obfuscation)
        include = frozenset(request.include or ())
        if request.top_logprobs:
            include |= {LOGPROBS}
        if ENCRYPTED_IF_ANY in include:
            include |= {ENCRYPTED_REASONING}
        policy = cls(
            _allowed_by(request), request.parallel_tool_calls is False, include, pad if wants_padding else None
        )
        if wants_padding and pad is None:
            policy.losses.add(
                "stream_options.include_obfuscation", "deltas are not padded", "no source of padding is configured"
            )
        return policy

    @property
    def passes_text_deltas(self) -> bool:
        """Whether plain deltas pass unchanged at the moment."""
        return self._idle

    def feed(self, event: StreamEvent) -> list[StreamEvent]:
        """The events to deliver for `event`: usually the event itself, none if it belongs to a withheld call."""
        # The hot path of every stream: no copy and no further checks. Types are compared directly, because a negative
        # `isinstance` check of a shape takes six times as long.
        kind = type(event)
        any_event: Any = event
        if self._idle and kind in DELTAS and any_event.obfuscation is UNSET:
            if kind is not OutputTextDelta or not any_event.logprobs:
                return [event]
        elif kind is ItemAdded:
            self._judge(any_event)
        if self._withheld and self._concerns_withheld_call(event):
            self._withheld_events += 1
            return []
        if kind is UnknownEvent:
            return [self._renumber_raw(any_event) if self._withheld_events else event]
        changes = self._trimming(kind, any_event)
        if self._withheld_events:
            changes |= self._placing(event)
        if changes:
            event = replace(event, **changes)
        if self._refused and type(event) is ResponseCompleted and not any(map(_has_content, event.response.output)):
            return self._fail(event)
        return [event]

    def apply_to_response(self, response: Response) -> Response:
        """Applies the policy to a response that was not streamed: the fold of the events to deliver (STR-14)."""
        if len(response.output) == 1 and self._passes(response.output[0]):  # the common case
            return response
        # A cancelled response was checked while it was streamed, and `replay` cannot end its stream.
        if response.status != ResponseStatus.CANCELLED and any(type(item) in CALLS for item in response.output):
            return fold(delivered for event in replay(response) for delivered in self.feed(event))
        return self._trim_response(response)  # no calls to check: the same result without a stream

    def _passes(self, item: Item) -> bool:
        """Whether the item is one text without fields to remove."""
        if type(item) is not Message or len(item.content) != 1:
            return False
        part = item.content[0]
        return type(part) is OutputText and not part.logprobs

    def without_withheld_items(self, response: Response) -> Response:
        """The response without withheld calls. Fields that the client did not ask for are kept."""
        if not self._withheld:
            return response
        return replace(
            response, output=[item for index, item in enumerate(response.output) if index not in self._withheld]
        )

    def trim_item(self, item: Item) -> Item:
        """One item without the fields that the client did not ask for."""
        return self._trim_item(item)

    # Calls

    def _judge(self, event: ItemAdded) -> None:
        """TOOL-3, TOOL-4: withholds an announced call that is not allowed."""
        match event.item:
            case FunctionCall(id=id, namespace=namespace, name=name):
                key: _ToolKey = ("function", namespace or None, name)
            case CustomToolCall(id=id, namespace=namespace, name=name):
                key = ("custom", namespace or None, name)
            case _:
                return
        if self._allowed is not None and key not in self._allowed and ("namespace", key[1], None) not in self._allowed:
            self._refused.append(name)
            reason = "tool_choice does not allow it"
        elif self._one_call and self._has_call:
            reason = "parallel_tool_calls is false, and the response already has a call"
        else:
            self._has_call = True
            return
        self._withheld.append(event.output_index)
        self._withheld_ids.add(id)
        self._idle = False
        self.losses.add(f"output[{event.output_index}]", f"the call of {name!r} is withheld", reason)

    def _concerns_withheld_call(self, event: StreamEvent) -> bool:
        if isinstance(event, UnknownEvent):
            index = _index_in(event)
            return index in self._withheld or event.string_member("item_id") in self._withheld_ids
        return getattr(event, "output_index", None) in self._withheld

    def _fail(self, event: ResponseCompleted) -> list[StreamEvent]:
        """TOOL-3: fails a response that has nothing but withheld calls."""
        names = ", ".join(dict.fromkeys(self._refused))
        error = ApiError(
            f"the model only called tools that tool_choice does not allow: {names}",
            type="model_error",
            code="tool_not_allowed",
        )
        response = replace(
            event.response,
            status=ResponseStatus.FAILED,
            completed_at=None,
            error=Error(code=error.code, message=error.message),
        )
        number = event.sequence_number
        return [
            ErrorEvent(sequence_number=number, error=error_payload(error)),
            ResponseFailed(sequence_number=number + 1, response=response),
        ]

    # Numbers

    def _placing(self, event: StreamEvent) -> dict[str, Any]:
        """STR-5: the new numbers of an event after withheld events."""
        changes: dict[str, Any] = {"sequence_number": event.sequence_number - self._withheld_events}
        index: int | None = getattr(event, "output_index", None)
        if index is not None:
            changes["output_index"] = self._place(index)
        return changes

    def _place(self, index: int) -> int:
        return index - bisect_left(self._withheld, index)

    def _renumber_raw(self, event: UnknownEvent) -> UnknownEvent:
        number = event.sequence_number - self._withheld_events
        members: dict[str, Any] = {**event.raw_members(), "sequence_number": number}
        index = _index_in(event)
        if index is not None:
            members["output_index"] = self._place(index)
        return UnknownEvent(kind=event.kind, raw=Raw(msgspec.json.encode(members)), sequence_number=number)

    # Fields that are sent only on request. Removing them is no loss.

    def _trimming(self, kind: type, event: Any) -> dict[str, Any]:
        if kind in RESPONSE_EVENTS:
            return _change("response", event.response, self._trim_response(event.response))
        if kind is ItemAdded or kind is ItemDone:
            return _change("item", event.item, self._trim_item(event.item)) if event.item is not None else {}
        if kind is ContentPartAdded or kind is ContentPartDone:
            return _change("part", event.part, self._trim_part(event.part))
        if kind is OutputTextDone:
            return {"logprobs": []} if event.logprobs and LOGPROBS not in self._include else {}
        return self._trim_delta(event) if kind in DELTAS else {}

    def _trim_delta(self, event: DeltaEvent) -> dict[str, Any]:
        """STR-13: padding only if requested. STR-12: the same for logprobs."""
        changes: dict[str, Any] = {}
        if self._pad is not None:
            changes["obfuscation"] = self._pad(len(event.delta))
        elif event.obfuscation is not UNSET:
            changes["obfuscation"] = UNSET
        if isinstance(event, OutputTextDelta) and event.logprobs and LOGPROBS not in self._include:
            changes["logprobs"] = []
        return changes

    def _trim_response(self, response: Response) -> Response:
        if not response.output:
            return response
        visible_items = [item for index, item in enumerate(response.output) if index not in self._withheld]
        output = [self._trim_item(item) for item in visible_items]
        is_unchanged = len(output) == len(response.output) and all(map(_is, output, response.output))
        return response if is_unchanged else replace(response, output=output)

    def _trim_item(self, item: Item) -> Item:
        include = self._include
        match item:
            case Message():
                content = [self._trim_part(part) for part in item.content]
                return item if all(map(_is, content, item.content)) else replace(item, content=content)
            case Reasoning(encrypted_content=str()) if ENCRYPTED_REASONING not in include:  # RSN-2
                return replace(item, encrypted_content=UNSET)
            case WebSearchCall(action={"sources": _, **action}) if "web_search_call.action.sources" not in include:
                return replace(item, action=action)
            case FileSearchCall(results=list()) if "file_search_call.results" not in include:
                return replace(item, results=None)
            case CodeInterpreterCall(outputs=list()) if "code_interpreter_call.outputs" not in include:
                return replace(item, outputs=None)
            case _:
                return item

    def _trim_part(self, part: Content) -> Content:
        match part:
            case OutputText(logprobs=[_, *_]) if LOGPROBS not in self._include:  # STR-12
                return replace(part, logprobs=[])
            case _:
                return part


def _allowed_by(request: Request) -> frozenset[_ToolKey] | None:
    """The tools that may be called, None if the request allows all (TOOL-2, TOOL-3)."""
    match request.tool_choice:
        case "none" | AllowedToolsParam(mode="none"):
            return frozenset()
        case AllowedToolsParam(tools=tools):
            return frozenset(map(_key_of, tools))
        case SpecificFunction() | SpecificCustom() as choice:
            return frozenset({_key_of(choice)})
        case _:
            return None


def _key_of(choice: SpecificToolChoice) -> _ToolKey:
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


def _index_in(event: UnknownEvent) -> int | None:
    index = msgspec.json.decode(event.raw_members().get("output_index", Raw(b"null")))
    return index if isinstance(index, int) else None


def _change(name: str, old: object, new: object) -> dict[str, Any]:
    return {} if new is old else {name: new}


def _is(one: object, other: object) -> bool:
    return one is other


DELTAS: Final[frozenset[type]] = frozenset(
    {OutputTextDelta, ReasoningDelta, ArgumentsDelta, CustomInputDelta, SummaryTextDelta, RefusalDelta}
)
CALLS: Final[tuple[type, ...]] = (FunctionCall, CustomToolCall)
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
