"""The openai SDK compacts through the gateway: `responses.compact`, a trigger, a threshold. Anything it cannot parse is
our bug."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from tests.api.stateful import ALICE, Lab, lab

from antiphon import testing
from antiphon.testing import turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
SUMMARY = turn(testing.text("The code word is slate."), testing.usage(90, 9))
TALK: list[Any] = [
    {"role": "user", "content": "The code word is slate. " * 200},
    {"role": "assistant", "content": "Noted. " * 400},
    {"role": "user", "content": "Thanks."},
]


@pytest.fixture(scope="module")
def place() -> Iterator[Lab]:
    with lab() as running:
        yield running


@pytest.fixture
def client(place: Lab) -> Iterator[OpenAI]:
    place.begin()
    with OpenAI(base_url=f"{place.url}/v1", api_key=ALICE, max_retries=0, timeout=60) as made:
        yield made


def test_sdk_compact_output_is_accepted_as_input(place: Lab, client: OpenAI) -> None:
    """CMP-1, CMP-3."""
    place.says.append(SUMMARY)
    made = client.responses.compact(model="mock-1", input=TALK, instructions="Be kind.")
    assert (made.object, made.output[-1].type, made.usage.total_tokens) == ("response.compaction", "compaction", 99)
    # As the SDK types user messages as messages of the assistant, it warns of their content.
    window: list[Any] = [item.model_dump(warnings=False) for item in made.output]
    response = client.responses.create(model="mock-1", input=[*window, {"role": "user", "content": "Which word?"}])
    assert response.output_text == "Hello."
    assert "The code word is slate." in place.messages[0][1]
    again = client.responses.create(model="mock-1", input="And now?", previous_response_id=response.id)
    assert again.previous_response_id == response.id
    assert "The code word is slate." in place.messages[0][1]


def test_sdk_compact_accepts_a_stored_response_id(place: Lab, client: OpenAI) -> None:
    first = client.responses.create(model="mock-1", input="The code word is slate.")
    place.says.append(SUMMARY)
    assert client.responses.compact(model="mock-1", previous_response_id=first.id).output[-1].type == "compaction"


def test_sdk_streams_the_compaction_of_a_trigger_and_a_threshold(place: Lab, client: OpenAI) -> None:
    """CMP-1."""
    place.says.append(SUMMARY)
    trigger: Any = {"type": "compaction_trigger"}
    with client.responses.stream(model="mock-1", input=[*TALK, trigger]) as stream:
        done = [event.item.type for event in stream if event.type == "response.output_item.done"]
        assert done == ["compaction"]
        assert [item.type for item in stream.get_final_response().output] == ["compaction"]
    place.says.append(SUMMARY)
    management: Any = [{"type": "compaction", "compact_threshold": 800}]
    with client.responses.stream(model="mock-1", input=TALK, context_management=management) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["compaction", "message"]
    assert text == final.output_text == "Hello."
    assert final.usage is not None
    assert final.usage.total_tokens == 106


def test_sdk_raises_bad_request_error_for_a_forged_compaction(client: OpenAI) -> None:
    """CMP-2."""
    forged: Any = {"type": "compaction", "encrypted_content": "antiphon1.forged"}
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(model="mock-1", input=[forged])
    assert (caught.value.code, caught.value.param) == ("invalid_compaction", "input[0].encrypted_content")
