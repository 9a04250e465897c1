"""The matrix: every client dialect to every server dialect, in every scenario, plain and streaming, with the official
SDKs.

In every cell the client gets the same result, the server received the same request, and the losses are the expected
ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.matrix.expected import (
    DIALECTS,
    Cell,
    expected_answer,
    expected_history,
    expected_losses,
    expected_thoughts,
)
from tests.matrix.neutral import Failed, Text, Weather
from tests.matrix.rig import Rig, rig
from tests.matrix.scenarios import SCENARIOS, Scenario
from tests.matrix.strict_types import find_type_errors

from antiphon import testing

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
WORKING = [scenario for scenario in SCENARIOS if not scenario.breaks]
[BREAKING] = [scenario for scenario in SCENARIOS if scenario.breaks]
[REASONING] = [scenario for scenario in SCENARIOS if scenario.asked.thinks]

streaming = pytest.mark.parametrize("streams", [False, True], ids=["plain", "stream"])
every_server = pytest.mark.parametrize("server", DIALECTS)
every_client = pytest.mark.parametrize("client", DIALECTS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("matrix")) as made:
        yield made


def do_nothing() -> None:
    """The default action for a piece of text."""


@streaming
@pytest.mark.parametrize("scenario", WORKING, ids=lambda scenario: scenario.name.replace(" ", "_"))
@every_server
@every_client
def test_client_gets_the_same_result_in_every_cell(
    shared: Rig, client: str, server: str, scenario: Scenario, streams: bool
) -> None:
    """F-1, F-4: texts, reasoning, calls with their ids and arguments, the stop reason, and usage by each API's own
    arithmetic (REQ-4). RSN-1, RSN-2: reasoning is shown, and returned to its server with a seal that only that server
    can have made. The types of the client's SDK, in strict mode, allow the answer and every event."""
    asking, serving = shared.clients[client], shared.servers[server]
    cell = Cell(client, server, scenario)
    serving.begin([testing.turn(*turn.script()) for turn in scenario.turns])
    asking.begin(serving.kind.model, scenario.asked)
    for number, turn in enumerate(scenario.turns):
        answer = asking.ask(streams=streams, on_text=do_nothing)
        body = serving.body(number)
        assert answer == expected_answer(cell, number)
        assert serving.kind.told(body) == expected_history(cell, number, serving.kind)
        if scenario.asked.thinks:
            assert serving.kind.thoughts(body) == expected_thoughts(client, serving.kind, number)
        if scenario.asked.structured:
            assert serving.kind.schema(body)["properties"].keys() == Weather.model_fields.keys()
        losses = shared.losses(streams=streams)
        assert sorted(loss.path.rpartition(":")[2] for loss in losses) == expected_losses(cell, number)
        assert find_type_errors(client, shared.last_answer, is_stream=streams) == []
        asking.give(turn.results)
    assert serving.fake.refusals == []
    assert len(serving.fake.received) == len(scenario.turns)


@streaming
@every_server
@every_client
def test_client_receives_an_error_during_the_stream(shared: Rig, client: str, server: str, streams: bool) -> None:
    """STR-8, ERR-4: its SDK raises, after it yielded the text so far."""
    asking, serving = shared.clients[client], shared.servers[server]
    gate = testing.Gate()
    [turn] = BREAKING.turns
    serving.begin([serving.broken(turn.script(), gate)])
    asking.begin(serving.kind.model, BREAKING.asked)
    if not streams:
        gate.open()
    with pytest.raises(Failed) as failed:
        asking.ask(streams=streams, on_text=gate.open)
    [text] = turn.said
    assert isinstance(text, Text)
    assert failed.value.text == (text.text if streams else "")
    assert ("overloaded" if streams else "closed the connection") in str(failed.value).lower()
    assert shared.losses(streams=streams) == []


@pytest.mark.parametrize(("maker", "other"), list(itertools.permutations(DIALECTS, 2)), ids="-".join)
@every_client
def test_reasoning_is_never_sent_to_another_server(shared: Rig, client: str, maker: str, other: str) -> None:
    """RSN-3: if a client changes the model between a call and its result, the loss is reported and the conversation
    continues. Without a seal nobody knows who made it: a server that accepts plain reasoning gets it."""
    asking, first, second = shared.clients[client], shared.servers[maker], shared.servers[other]
    calling, answering = REASONING.turns
    first.begin([testing.turn(*calling.script())])
    second.begin([testing.turn(*answering.script())])
    asking.begin(first.kind.model, REASONING.asked)
    asking.ask(streams=False, on_text=do_nothing)
    asking.move(second.kind.model)
    asking.give(calling.results)
    cell = Cell(client, other, REASONING)
    assert asking.ask(streams=False, on_text=do_nothing) == expected_answer(cell, 1)
    body = second.body(0)
    assert second.kind.told(body) == expected_history(cell, 1, second.kind)
    # Within a dialect an answer passes as it came, and some servers send plain reasoning.
    thoughts = expected_thoughts(client, second.kind, 1, is_maker=False, is_sealed=(client, maker) not in UNSEALED)
    assert second.kind.thoughts(body) == thoughts
    assert second.fake.refusals == []
    lost = [loss.path for loss in shared.losses(streams=False) if loss.what == "earlier reasoning"]
    expected_path = "input[2]" if client == maker == "gemini" and thoughts else "input[1]"  # the signature of the call
    assert lost[:1] == ([] if thoughts and client != "gemini" else [expected_path])


#: Clients and servers of one dialect whose plain reasoning has no seal.
UNSEALED = [("chat", "chat"), ("gemini", "gemini")]
