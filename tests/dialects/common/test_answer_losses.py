"""Losses of answers: events, items, parts, fields, roles, and the reason of an incomplete response."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.protocol.content import OutputText, UnknownContent
from antiphon.protocol.events import UnknownEvent
from antiphon.protocol.items import Message, UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import IncompleteDetails, Response, make_initial_response
from antiphon.protocol.status import ItemStatus

WORDS = {"max_output_tokens": "length"}
RESPONSE = make_initial_response(Request(input="hi"), id="resp_1", created_at=0)


def message(**fields: Any) -> Message:
    return Message(**{"id": "msg_1", "status": ItemStatus.COMPLETED, "role": "assistant", "content": [], **fields})


@pytest.fixture
def losses() -> Losses:
    return Losses()


def test_unsupported_content_is_reported_with_its_path_and_type(losses: Losses) -> None:
    reporter = AnswerLosses(losses)
    reporter.report_event(UnknownEvent(kind="x.progress", sequence_number=1, raw=Raw(b"{}")))
    reporter.report_item(2, UnknownItem(kind="x:item", raw=Raw(b"{}")))
    reporter.report_part(3, UnknownContent(kind="x_part", raw=Raw(b"{}")))
    assert [(loss.path, loss.what) for loss in losses] == [
        ("events", "an event of type 'x.progress'"),
        ("output[2]", "an item of type 'x:item'"),
        ("output[3].content", "a part of type 'x_part'"),
    ]


def test_unknown_fields_and_the_phase_of_items_are_reported(losses: Losses) -> None:
    extra = {"x": Raw(b"1")}
    reporter = AnswerLosses(losses)
    reporter.report_item_fields(0, message(phase="commentary", extra=extra))
    reporter.report_part_fields(1, OutputText(text="a", annotations=[], logprobs=[], extra=extra))
    assert [loss.path for loss in losses] == ["output[0].x", "output[0].phase", "output[1].content.x"]


def test_content_without_unknown_fields_has_no_loss(losses: Losses) -> None:
    reporter = AnswerLosses(losses)
    reporter.report_item_fields(0, message())
    reporter.report_item_fields(0, UnknownItem(kind="x:item", raw=Raw(b"{}")))
    reporter.report_part_fields(1, UnknownContent(kind="x_part", raw=Raw(b"{}")))
    assert not losses


def test_message_of_another_role_is_reported(losses: Losses) -> None:
    reporter = AnswerLosses(losses)
    assert not reporter.report_other_role(0, message())
    assert reporter.report_other_role(1, message(role="user"))
    assert [loss.path for loss in losses] == ["output[1]"]


@pytest.mark.parametrize(
    ("reason", "expected", "lost"),
    [
        (None, None, []),
        ("max_output_tokens", "length", []),
        ("pause_turn", "other", ["incomplete_details.reason"]),
    ],
)
def test_reason_of_an_incomplete_response_is_translated_REQ3(
    reason: str | None, expected: str | None, lost: list[str], losses: Losses
) -> None:
    response: Response = replace(
        RESPONSE, incomplete_details=None if reason is None else IncompleteDetails(reason=reason)
    )
    assert AnswerLosses(losses).incomplete_reason(response, WORDS, "other") == expected
    assert [loss.path for loss in losses] == lost
