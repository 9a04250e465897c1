"""Gateways that are shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api.stateful import Lab, lab_on


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A gateway with a store of each kind."""
    with lab_on(request.param) as lab:
        yield lab


@pytest.fixture
def here(shared: Lab) -> Iterator[Lab]:
    """The shared gateway. The servers behind it must have refused nothing at the end of the test."""
    shared.begin()
    yield shared
    assert shared.chat.refusals == shared.other.refusals == []
