"""`gateway/refusal_memory`: which refusals of an upstream's models are remembered, how many and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.responses import ResponsesWire
from antiphon.gateway.refusal_memory import LIFETIME, MAX_MODEL_NAME, MAX_MODELS, RefusalMemory

WIRE = ResponsesWire(no_reasoning_models=("*",))


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_refusal_is_remembered_for_an_hour_and_for_its_model() -> None:
    clock = Clock()
    memory = RefusalMemory(clock)
    memory.remember("m", "encrypted_reasoning", WIRE)
    refusals = memory.find("m")
    assert refusals is not None
    assert (refusals.refused, refusals.wire) == (("encrypted_reasoning",), WIRE)
    assert memory.find("other") is None
    clock.seconds += LIFETIME - 1
    assert memory.find("m") is refusals
    clock.seconds += 1
    assert memory.find("m") is None


def test_second_refusal_is_remembered_with_the_first() -> None:
    memory = RefusalMemory(Clock())
    memory.remember("m", "reasoning", ResponsesWire())
    memory.remember("m", "encrypted_reasoning", WIRE)
    memory.remember("m", "encrypted_reasoning", WIRE)
    refusals = memory.find("m")
    assert refusals is not None
    assert (refusals.refused, refusals.wire) == (("reasoning", "encrypted_reasoning"), WIRE)


@given(names=st.lists(st.integers(0, 2 * MAX_MODELS), min_size=1, max_size=20))
def test_refusal_memory_is_limited(names: list[int]) -> None:
    """The oldest is evicted first, and a repeated refusal becomes the newest."""
    memory = RefusalMemory(Clock())
    for number in range(MAX_MODELS):
        memory.remember(str(number), "encrypted_reasoning", WIRE)
    order = [str(number) for number in range(MAX_MODELS)]
    for name in map(str, names):
        memory.remember(name, "encrypted_reasoning", WIRE)
        order = [*[other for other in order if other != name][-(MAX_MODELS - 1) :], name]
    assert [name for name in map(str, range(2 * MAX_MODELS + 1)) if memory.find(name)] == sorted(order, key=int)


def test_overlong_model_name_is_not_remembered() -> None:
    memory = RefusalMemory(Clock())
    memory.remember("m" * MAX_MODEL_NAME, "encrypted_reasoning", WIRE)
    memory.remember("m" * (MAX_MODEL_NAME + 1), "encrypted_reasoning", WIRE)
    assert memory.find("m" * MAX_MODEL_NAME) is not None
    assert memory.find("m" * (MAX_MODEL_NAME + 1)) is None
