"""`dialects/common/timestamps`: equal to the standard library."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.timestamps import rfc3339


@given(st.integers(0, 253_402_300_799))
def test_time_equals_that_of_the_standard_library(second: int) -> None:
    assert rfc3339(second) == datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_251_200, "2024-03-01T00:00:00Z"),
    ],
)
def test_time_around_leap_days(second: int, text: str) -> None:
    assert rfc3339(second) == text
