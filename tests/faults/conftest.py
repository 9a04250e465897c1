"""One lab for each dialect, shared by a file's tests; whatever a test did to it, the invariants hold afterwards.

And nothing of a request is left for the collector to find, which looks rarely: objects that hold each other would be a leak.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
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


@contextmanager
def nothing_to_collect() -> Iterator[None]:
    """What was made meanwhile by the gateway and is needed no more is gone without the collector."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(type(left).__qualname__ for left in gc.garbage if is_ours(type(left)))
        assert not found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("antiphon.") and not kind.__module__.startswith("antiphon.fakes")


@pytest.fixture(params=[True, False], ids=["stream", "plain"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client wants a stream."""
    return bool(request.param)
