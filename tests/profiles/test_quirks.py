"""Every quirk, by laws for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.profiles.requests import call_ids, requests, words, words_by_path

from antiphon.profiles.profile import Quirk
from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.items import OnlyItemsOptions
from antiphon.profiles.quirks.roles import InstructionsToSystemOptions, SystemToInstructionsOptions
from antiphon.protocol.codec import encode
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

PLAIN = [Quirk(name, kind.options()) for name, kind in QUIRKS.items() if name != "only_items"]
EVERY = [
    *PLAIN,
    Quirk("only_items", OnlyItemsOptions(types=["message", "function_call", "function_call_output"])),
    Quirk("system_to_instructions", SystemToInstructionsOptions(move="all")),
    Quirk("instructions_to_system", InstructionsToSystemOptions(role="developer")),
]
every_quirk = pytest.mark.parametrize("quirk", EVERY, ids=lambda quirk: quirk.name)


@pytest.mark.without_coverage
@every_quirk
@settings(max_examples=40)
@given(request_=requests())
def test_quirks_report_every_removed_text(quirk: Quirk, request_: Request) -> None:
    """E-5, F-4."""
    changed, losses = apply(quirk, request_)
    left = set(words(changed))
    named = [loss.path for loss in losses]
    lost = {path for word, path in words_by_path(request_).items() if word not in left}
    assert {path for path in lost if not any(path.startswith(name) for name in named)} == set()


@pytest.mark.without_coverage
@pytest.mark.slow
@every_quirk
@settings(max_examples=40)
@given(request_=requests())
def test_quirks_keep_the_order_of_items(quirk: Quirk, request_: Request) -> None:
    """E-5: in the input, and in the instructions."""
    before = words(request_)
    changed, _ = apply(quirk, request_)
    for place in (changed.instructions, changed.input):
        after = [word for word in before if word in set(words_by_path(place))]
        assert list(words_by_path(place)) == after


@pytest.mark.without_coverage
@every_quirk
@settings(max_examples=40)
@given(request_=requests())
def test_quirks_keep_call_ids(quirk: Quirk, request_: Request) -> None:
    """E-5."""
    changed, losses = apply(quirk, request_)
    dropped = quirk.name == "only_items" and len(losses) > 0
    assert dropped or call_ids(changed) == call_ids(request_)


@pytest.mark.without_coverage
@every_quirk
@settings(max_examples=40)
@given(request_=requests())
def test_quirks_are_idempotent(quirk: Quirk, request_: Request) -> None:
    once, _ = apply(quirk, request_)
    twice, losses = apply(quirk, once)
    assert twice is once
    assert list(losses) == []


@pytest.mark.without_coverage
@pytest.mark.slow
@every_quirk
@settings(max_examples=40)
@given(request_=requests())
def test_quirks_return_the_same_object_if_nothing_changes(quirk: Quirk, request_: Request) -> None:
    before = encode(request_)
    changed, losses = apply(quirk, request_)
    assert encode(request_) == before
    if encode(changed) == before:
        assert changed is request_
        assert list(losses) == []


def apply(quirk: Quirk, request: Request) -> tuple[Request, Losses]:
    losses = Losses()
    return quirk.apply(request, losses), losses
