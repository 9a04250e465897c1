"""One lab for each dialect, shared by a file's tests; whatever a test did to it, the invariants hold afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.collecting import nothing_to_collect
from tests.faults.invariants import DIALECTS, Lab, laboratory


@pytest.fixture(scope="module", params=DIALECTS)
def shared_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with laboratory(request.param) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """After each test: the six invariants, and that everything has been let go."""
    shared_lab.upstream.received.clear()
    with nothing_to_collect():
        yield shared_lab
        shared_lab.settle()


@pytest.fixture(params=[True, False], ids=["stream", "plain"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client wants a stream."""
    return bool(request.param)
