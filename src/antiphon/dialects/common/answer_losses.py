"""Reports content of a response that clients of a dialect cannot get as losses. The answer writers share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.dialects.common.call_arguments import are_whole_calls
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.base import Shape
from antiphon.protocol.content import Content
from antiphon.protocol.events import UnknownEvent
from antiphon.protocol.items import Item, Message
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response


class AnswerLosses:
    """Reports the losses of one response. `index` is the output index of an item."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def report_event(self, event: UnknownEvent) -> None:
        self._losses.add("events", f"an event of type {event.kind!r}", "the API has no equivalent")

    def report_item(self, index: int, item: Item) -> None:
        """Report an item that the client cannot get."""
        self._losses.add(f"output[{index}]", f"an item of type {type_of(item)!r}", "the API has no equivalent")

    def report_item_fields(self, index: int, item: Item) -> None:
        """Report the fields of a complete item that the client cannot get: unknown ones, and the phase of a message."""
        if isinstance(item, Shape):
            report_unknown_fields(item, f"output[{index}]", self._losses)
        if isinstance(item, Message) and item.phase:
            self._losses.add(f"output[{index}].phase", "the phase of a message", "the API has no equivalent")

    def report_part(self, index: int, part: Content) -> None:
        """Report a part that the client cannot get."""
        self._losses.add(f"output[{index}].content", f"a part of type {type_of(part)!r}", "the API has no equivalent")

    def report_part_fields(self, index: int, part: Content) -> None:
        if isinstance(part, Shape):
            report_unknown_fields(part, f"output[{index}].content", self._losses)

    def report_other_role(self, index: int, message: Message) -> bool:
        """Report a message of another role than the assistant's. Return whether it is one."""
        if message.role == "assistant":
            return False
        self._losses.add(
            f"output[{index}]", f"a message of the role {message.role!r}", "an answer has only the assistant role"
        )
        return True

    def incomplete_reason(self, response: Response, words: Mapping[str, str], default: str) -> str | None:
        """REQ-3: return the API's word for the reason of an incomplete response, or None if the response is complete.

        An unknown reason becomes `default`, and is a loss. Behind nothing but whole calls it becomes None: many clients
        run calls only behind the word for calls.
        """
        if response.incomplete_details is None:
            return None
        reason = response.incomplete_details.reason
        if reason in words:
            return words[reason]
        word = None if reason not in FAILED_CALLS and are_whole_calls(response.output) else default
        why = "the API has no equivalent; " + ("the calls are whole" if word is None else f"{default!r} is sent")
        self._losses.add("incomplete_details.reason", f"the reason {reason!r}", why)
        return word


#: Reasons which mean that a call beside the whole ones failed.
FAILED_CALLS: Final = frozenset(
    {"malformed_function_call", "malformed_response", "too_many_tool_calls", "tool_not_allowed", "unexpected_tool_call"}
)
