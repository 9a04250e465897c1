"""Every client × every server × every fault × stream or whole: a first target that fails, and a second that answers, of
the same dialect. Every pair of other dialects × every fault × stream or whole, with the clients in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest
from tests.faults.routing_lab import CLIENTS, FAULTS, SERVERS, RoutingLab, routing_lab
from tests.faults.test_routing import check_case

pytestmark = pytest.mark.timed
OTHER_DIALECTS = [
    (CLIENTS[number % len(CLIENTS)], first, second, fault, stream)
    for number, ((first, second), fault, stream) in enumerate(
        product(permutations(SERVERS, 2), FAULTS, ("stream", "whole"))
    )
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutingLab]:
    with routing_lab(tmp_path_factory.mktemp("store")) as running_lab:
        yield running_lab


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_failed_first_target_is_replaced_in_every_combination(
    lab: RoutingLab, client: str, server: str, fault: str, stream: bool
) -> None:
    check_case(lab, client, server, fault, stream=stream)


@pytest.mark.parametrize(("client", "first", "second", "fault", "stream"), OTHER_DIALECTS)
def test_target_of_another_dialect_takes_over(
    lab: RoutingLab, client: str, first: str, second: str, fault: str, stream: str
) -> None:
    check_case(lab, client, first, fault, stream=stream == "stream", second=second)
