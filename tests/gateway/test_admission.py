"""`gateway/admission`: open turns are bounded for the process and for each key."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from antiphon.errors import ApiError
from antiphon.gateway.admission import TurnAdmission


def test_turns_of_a_process_are_bounded() -> None:
    admission = TurnAdmission(2, None)
    with ExitStack() as turns:
        turns.enter_context(admission.admit("a"))
        turns.enter_context(admission.admit("a"))
        with pytest.raises(ApiError) as caught, admission.admit("b"):
            pass
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "overloaded", 1.0)
    assert admission.open_turns == 0
    with admission.admit("b"):
        assert admission.open_turns == 1


def test_turns_of_a_key_are_bounded() -> None:
    admission = TurnAdmission(10, 1)
    with admission.admit("a"):
        with pytest.raises(ApiError) as caught, admission.admit("a"):
            pass
        with admission.admit("b"):
            pass
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "rate_limit_exceeded", 1.0)
    with admission.admit("a"):
        pass


def test_turn_that_fails_is_not_open_any_more() -> None:
    admission = TurnAdmission(1, 1)
    with pytest.raises(ZeroDivisionError), admission.admit("a"):
        raise ZeroDivisionError
    assert admission.open_turns == 0


def test_limits_can_change_while_turns_are_open() -> None:
    admission = TurnAdmission(1, None)
    with admission.admit("a"):
        admission.set_limits(2, 1)
        with pytest.raises(ApiError, match="of this key"), admission.admit("a"):
            pass
        with admission.admit("b"):
            assert admission.open_turns == 2
