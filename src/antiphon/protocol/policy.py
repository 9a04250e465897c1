"""What a request forbids or asks for is enforced here on the hub's events, whatever the upstream did.

Calls that the request rules out are withheld, what comes only when asked for is taken out, deltas are padded if padding was asked
for. What comes out is a stream again, numbered without gaps, its terminal response in accord with it: a caller who wants no stream
folds it. Only function and custom calls are judged: the receipts of hosted tools tell what has happened already.
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
# A tool as a choice names it: kind, namespace, name. A whole namespace has no name.
_ToolKey = tuple[str, str | None, str | None]


class Policy:
    """One response's policy: feed it every event in order, deliver what it returns."""

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
        self._withheld: list[int] = []  # output indexes; rising, since items are announced in order
        self._withheld_ids: set[str] = set()
        self._withheld_events = 0  # how many events were withheld
        self._idle = pad is None  # until something is withheld, a plain delta passes untouched

    @classmethod
    def for_request(cls, request: Request, *, pad: PaddingSource | None = None) -> Policy:
        """The policy of what the client asked; `pad` makes padding for a delta of a given length (STR-13)."""
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
                "stream_options.include_obfuscation", "deltas are not padded", "there is no source of padding here"
            )
        return policy

    @property
    def passes_text_deltas(self) -> bool:
        """Whether plain deltas go through as they are for now."""
        return self._idle

    def feed(self, event: StreamEvent) -> list[StreamEvent]:
        """What is delivered in place of `event`: mostly the event itself, nothing if it speaks of a withheld call."""
        # The hot path of every stream: no copy, and no look at anything else. Types are compared, since asking `isinstance` of a
        # shape and getting a no costs six times as much.
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
        """A response that nobody streamed, as the fold of what would have been delivered (STR-14)."""
        if len(response.output) == 1 and self._passes(response.output[0]):  # as most are
            return response
        # What was cancelled was judged as it came, and no stream can tell it once more (see `replay`).
        if response.status != ResponseStatus.CANCELLED and any(type(item) in CALLS for item in response.output):
            return fold(delivered for event in replay(response) for delivered in self.feed(event))
        return self._trim_response(response)  # nothing to judge: the same, without the way round

    def _passes(self, item: Item) -> bool:
        """Whether it is one text, of which nothing has to be left out."""
        if type(item) is not Message or len(item.content) != 1:
            return False
        part = item.content[0]
        return type(part) is OutputText and not part.logprobs

    def without_withheld_items(self, response: Response) -> Response:
        """A response that was fed, without what the client may not have, but with what it merely did not ask for."""
        if not self._withheld:
            return response
        return replace(
            response, output=[item for index, item in enumerate(response.output) if index not in self._withheld]
        )

    def trim_item(self, item: Item) -> Item:
        """An item by itself, without what was not asked for."""
        return self._trim_item(item)

    # Calls

    def _judge(self, event: ItemAdded) -> None:
        """TOOL-3, TOOL-4: whether the call that is announced may be made."""
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
            reason = "parallel_tool_calls is false, and there was a call already"
        else:
            self._has_call = True
            return
        self._withheld.append(event.output_index)
        self._withheld_ids.add(id)
        self._idle = False
        self.losses.add(f"output[{event.output_index}]", f"the call of {name!r} was withheld", reason)

    def _concerns_withheld_call(self, event: StreamEvent) -> bool:
        if isinstance(event, UnknownEvent):
            index = _index_in(event)
            return index in self._withheld or event.string_member("item_id") in self._withheld_ids
        return getattr(event, "output_index", None) in self._withheld

    def _fail(self, event: ResponseCompleted) -> list[StreamEvent]:
        """TOOL-3: only forbidden calls were made, and the client has nothing it could go on with."""
        names = ", ".join(dict.fromkeys(self._refused))
        error = ApiError(
            f"the model answered with nothing but calls that tool_choice does not allow: {names}",
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
        """STR-5: where the event stands now that others before it are gone."""
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

    # What comes only when it was asked for. Leaving it out is no loss.

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
        """STR-13: padding if it was asked for, and none else. STR-12: logprobs likewise."""
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
    """The tools that may be called, None if the request sets no bounds (TOOL-2, TOOL-3)."""
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
        case _:  # a namespace as a whole, or a hosted tool, which no call of ours can match
            return (choice.kind, choice.string_member("name") or "", None)


def _has_content(item: Item) -> bool:
    """Whether a client can go on with this item: a message that says nothing and reasoning alone are no answer."""
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
