"""RSN-2: a client of this API gets the encrypted reasoning of a server of this API as the server sent it."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.responses.stream_out import unseal_event, unseal_item, unseal_response
from antiphon.protocol.content import InputText
from antiphon.protocol.events import ItemAdded, ItemDone, OutputTextDelta, ResponseCompleted
from antiphon.protocol.items import MessageParam, Reasoning, ReasoningParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response

OWN = seal_reasoning("lab", {"encrypted_content": "gAAA", "id": "rs_1"})
FOREIGN = seal_reasoning("other", {"signature": "s"})


def thought(content: str | None) -> Reasoning:
    return Reasoning(id="rs_1", summary=[], encrypted_content=UNSET if content is None else content)


@pytest.mark.parametrize(
    ("content", "expected"), [(OWN, "gAAA"), (FOREIGN, FOREIGN), ("raw", "raw"), ("", ""), (None, UNSET)]
)
def test_only_the_envelope_of_this_api_is_opened(content: str | None, expected: object) -> None:
    assert unseal_item(thought(content)).encrypted_content == expected
    assert unseal_item(ReasoningParam(summary=[], encrypted_content=content or UNSET)).encrypted_content == (
        expected or UNSET
    )
    item = thought(content)
    for event in (ItemAdded, ItemDone):
        opened = unseal_event(event(sequence_number=0, output_index=0, item=item))
        assert isinstance(opened, event)
        assert isinstance(opened.item, Reasoning)
        assert opened.item.encrypted_content == expected


def test_other_items_and_events_are_unchanged() -> None:
    message = MessageParam(role="user", content=[InputText(text="hi")])
    assert unseal_item(message) is message
    delta = OutputTextDelta(sequence_number=0, item_id="m", output_index=0, content_index=0, delta="x")
    assert unseal_event(delta) is delta
    nothing = ItemDone(sequence_number=0, output_index=0, item=None)
    assert unseal_event(nothing) is nothing


def test_response_is_opened_item_by_item() -> None:
    empty = make_initial_response(Request(), id="resp_1", created_at=1)
    assert unseal_response(empty) is empty
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    response.output.extend([thought(None), thought(OWN)])
    opened = unseal_event(ResponseCompleted(sequence_number=0, response=response))
    assert isinstance(opened, ResponseCompleted)
    assert [item.encrypted_content for item in opened.response.output if isinstance(item, Reasoning)] == [UNSET, "gAAA"]
