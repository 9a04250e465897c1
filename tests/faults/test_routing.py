"""A first target that fails: the second answers before the first content, and never after it. This is a sample of all
cases; `make test-faults` runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collecting import nothing_to_collect
from tests.faults.routing_lab import (
    CLIENTS,
    FAULTS,
    SERVERS,
    STREAMING_CLIENTS,
    ClientAnswer,
    RoutingLab,
    routing_lab,
)

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
#: Every client with every fault, and every server with every fault; the other dialect changes with the case.
SAMPLE = [
    (client, [*SERVERS][(number + place) % len(SERVERS)], fault)
    for number, client in enumerate(CLIENTS)
    for place, fault in enumerate(FAULTS)
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutingLab]:
    with routing_lab(tmp_path_factory.mktemp("store")) as running_lab:
        yield running_lab


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("client", "server", "fault"), SAMPLE)
def test_failed_first_target_is_replaced_before_its_first_content(
    lab: RoutingLab, client: str, server: str, fault: str, stream: bool
) -> None:
    check_case(lab, client, server, fault, stream=stream)


def check_case(lab: RoutingLab, client: str, server: str, fault: str, *, stream: bool) -> None:
    answer = lab.ask(client, server, fault, stream=stream)
    is_streamed = stream or client in STREAMING_CLIENTS
    if fault == "cut_after_content" and is_streamed:
        check_cut_answer(lab, answer, server)
        return
    assert (answer.status, answer.text) == ("completed", "Second."), answer
    assert lab.turns(server) == (0 if fault == "refused" else 1, 1)
    if client not in ("websocket", "background"):
        assert answer.headers["antiphon-upstream"] == f"second-{server}"
        assert answer.headers["antiphon-attempts"] == "2"
    assert answer.usage == (7, 3)  # of the second only


def check_cut_answer(lab: RoutingLab, answer: ClientAnswer, server: str) -> None:
    assert (answer.status, answer.text) == ("failed", "First "), answer
    assert lab.turns(server) == (1, 0)


def test_failover_leaves_nothing_to_collect(lab: RoutingLab) -> None:
    for fault in FAULTS:
        for stream in (True, False):
            with nothing_to_collect():
                lab.ask("responses", "chat", fault, stream=stream)


def test_head_that_is_sent_before_the_first_content_names_no_target(tmp_path: Path) -> None:
    """After ten seconds the head goes out, and another target may still answer."""
    with routing_lab(tmp_path, first_byte_timeout=0.1) as lab:
        answer = lab.ask("responses", "messages", "timeout", stream=True)
        assert (answer.status, answer.text) == ("completed", "Second.")
        assert "antiphon-upstream" not in answer.headers
        assert "antiphon-losses" not in answer.headers
