"""Sealed reasoning of a responses server through a client and back to its server (RSN-1 … RSN-4)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.dialects.responses.upstreams import read_events

from antiphon.dialects.common.envelope import seal_reasoning, unseal_reasoning
from antiphon.dialects.responses import ResponsesWire, request_from_hub
from antiphon.protocol import codec
from antiphon.protocol.content import ReasoningText, SummaryText
from antiphon.protocol.items import CompactionParam, Item, ItemParam, Reasoning, ReasoningParam
from antiphon.protocol.request import ReasoningConfigParam, ReasoningEffort, ReasoningSummary, Request

LAB = ResponsesWire(maker="lab")
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_up", "summary": [], "encrypted_content": "gAAA"}
CREATED = {"type": "response.created", "response": {"status": "in_progress"}}
COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}


def read(item: dict[str, Any], wire: ResponsesWire = LAB) -> Item:
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return read_events([CREATED, done, COMPLETED], wire).response.output[0]


def sent(item: ItemParam, wire: ResponsesWire = LAB) -> tuple[list[dict[str, Any]], list[str]]:
    body, losses = request_from_hub(Request(model="m", input=[item]), wire)
    items: list[dict[str, Any]] = json.loads(body)["input"]
    return items, [loss.path for loss in losses]


def as_input(item: Item) -> ReasoningParam:
    again: ItemParam = codec.decode_as(codec.encode(item), ItemParam)
    assert isinstance(again, ReasoningParam)
    return again


def test_encrypted_reasoning_returns_unchanged_to_its_server() -> None:
    """RSN-2: and it has its maker's name while the client has it."""
    item = read(THOUGHT)
    assert isinstance(item, Reasoning)
    envelope = unseal_reasoning(item.encrypted_content or "")
    assert envelope is not None
    assert (envelope.maker, envelope.content) == ("lab", {"encrypted_content": "gAAA", "id": "rs_up"})
    assert sent(as_input(item)) == ([THOUGHT], [])


def test_passed_through_reasoning_is_sealed() -> None:
    """RSN-2: reasoning with unknown parts is passed through, except for that."""
    item = read({**THOUGHT, "content": [{"type": "hologram"}]})
    assert isinstance(item, Reasoning)
    assert unseal_reasoning(item.encrypted_content or "") is not None
    open_one = read({**THOUGHT, "content": [{"type": "hologram"}], "encrypted_content": None})
    assert isinstance(open_one, Reasoning)
    assert not open_one.encrypted_content


def test_sealed_reasoning_is_returned_under_its_original_id() -> None:
    """RSN-2: such servers refuse reasoning that was sealed for another item."""
    sealed = as_input(read(THOUGHT)).encrypted_content
    renamed = ReasoningParam(id="rs_ours", summary=[], encrypted_content=sealed)
    assert sent(renamed)[0][0]["id"] == "rs_up"
    assert "id" not in sent(ReasoningParam(summary=[], encrypted_content=sealed))[0][0]
    nameless = as_input(read({**THOUGHT, "id": None}))
    assert sent(nameless)[0][0]["id"] == nameless.id


@pytest.mark.parametrize("content", [{"thinking": "Hm.", "signature": "s"}, {"encrypted_content": "gAAA"}])
def test_reasoning_of_another_maker_is_dropped(content: dict[str, Any]) -> None:
    """RSN-3: its plain text too."""
    foreign = ReasoningParam(summary=[], encrypted_content=seal_reasoning("other", content))
    assert sent(foreign) == ([], ["input[0]"])


def test_envelope_of_another_form_is_omitted() -> None:
    """RSN-3: each dialect of one maker has its own form."""
    assert sent(ReasoningParam(summary=[], encrypted_content=seal_reasoning("lab", {"thinking": "Hm."}))) == (
        [],
        ["input[0]"],
    )


def test_reasoning_without_an_envelope_passes_unchanged() -> None:
    """RSN-2: a client may have used that server directly before."""
    assert sent(ReasoningParam(summary=[], encrypted_content="gAAA"))[0][0]["encrypted_content"] == "gAAA"


def test_compactions_are_not_unsealed_as_reasoning() -> None:
    """RSN-2: from any maker."""
    sealed = seal_reasoning("other", {"encrypted_content": "x"})
    assert sent(CompactionParam(encrypted_content=sealed))[0][0]["encrypted_content"] == sealed


def test_wants_reasoning_back_follows_the_wire_option() -> None:
    """RSN-2."""
    assert ResponsesWire(sealed_reasoning=True).wants_reasoning_back
    assert not LAB.wants_reasoning_back


@pytest.mark.parametrize("effort", get_args(ReasoningEffort))
def test_effort_is_mapped_to_the_levels_of_the_server(effort: ReasoningEffort) -> None:
    """RSN-4: unchanged; an unsupported effort becomes the nearest, which is a loss."""
    nearest: dict[str, str] = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
    request = Request(model="m", input="hi", reasoning=ReasoningConfigParam(effort=effort, summary="concise"))
    body, losses = request_from_hub(request)
    assert (json.loads(body)["reasoning"], list(losses)) == ({"effort": effort, "summary": "concise"}, [])
    body, losses = request_from_hub(request, ResponsesWire(efforts=("low", "medium", "high")))
    assert json.loads(body)["reasoning"] == {"effort": nearest.get(effort, effort), "summary": "concise"}
    assert [loss.path for loss in losses] == (["reasoning.effort"] if effort in nearest else [])


def test_unset_effort_is_not_sent() -> None:
    """RSN-4."""
    request = Request(model="m", input="hi", reasoning=ReasoningConfigParam(summary="auto"))
    assert json.loads(request_from_hub(request, ResponsesWire(efforts=("low",)))[0])["reasoning"] == {"summary": "auto"}


SHOWN = ReasoningParam(id="rs_1", summary=[SummaryText(text="Long "), SummaryText(text="thought.")])


def returned(
    item: ReasoningParam, wire: ResponsesWire = LAB, **reasoning: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    """The item as the server gets it back, and the losses."""
    request = Request(model="m", input=[item], reasoning=ReasoningConfigParam(**reasoning))
    body, losses = request_from_hub(request, wire)
    return json.loads(body)["input"], [loss.path for loss in losses]


@pytest.mark.parametrize("summary", get_args(ReasoningSummary))
def test_open_reasoning_returns_as_content_if_summaries_are_requested(summary: ReasoningSummary) -> None:
    """RSN-4: the client got it as its summary."""
    content = [{"type": "reasoning_text", "text": "Long "}, {"type": "reasoning_text", "text": "thought."}]
    expected = {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}
    assert returned(SHOWN, summary=summary) == ([expected], [])
    assert returned(replace(SHOWN, content=None, encrypted_content=""), summary=summary) == (
        [{**expected, "encrypted_content": ""}],
        [],
    )


@pytest.mark.parametrize("reasoning", [{}, {"summary": None}, {"effort": "low"}])
def test_summary_stays_a_summary_if_none_is_requested(reasoning: dict[str, Any]) -> None:
    """RSN-4."""
    assert returned(SHOWN, **reasoning)[0] == [json.loads(codec.encode(SHOWN))]


@pytest.mark.parametrize(
    "changes",
    [
        {"content": [ReasoningText(text="More.")]},
        {"encrypted_content": "gAAA"},
        {"summary": []},
        {"summary": [SummaryText(text="Hm."), ReasoningText(text="Other.")]},
    ],
)
def test_summary_beside_other_reasoning_stays_a_summary(changes: dict[str, Any]) -> None:
    """RSN-1: it was the server's own."""
    item = replace(SHOWN, **changes)
    assert returned(item, summary="auto") == ([json.loads(codec.encode(item))], [])


def test_server_of_encrypted_reasoning_gets_no_open_reasoning() -> None:
    """RSN-3."""
    assert returned(SHOWN, ResponsesWire(reasoning="encrypted_only"), summary="auto") == ([], ["input[0]"])
