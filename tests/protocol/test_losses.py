"""Losses: kept once, in the order of discovery, and described in words (F-4)."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.dialect import ServerDialectName
from antiphon.protocol.losses import MAX_LISTED_LOSSES, MAX_TEXT_LENGTH, Loss, Losses

LOSSES = st.lists(
    st.tuples(st.sampled_from(["tools[0]", "input[2]"]), st.sampled_from(["a", "b"]), st.sampled_from(["", "why"]))
)


@given(LOSSES, LOSSES)
def test_losses_are_unique_and_ordered_F_4(
    first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]
) -> None:
    losses, others = Losses(), Losses()
    for loss in first:
        losses.add(*loss)
    for loss in second:
        others.add(*loss)
    losses.extend(others)
    wanted = list(dict.fromkeys(Loss(*loss) for loss in first + second))
    assert list(losses) == wanted
    assert len(losses) == len(wanted)
    assert bool(losses) == bool(wanted)


def test_loss_text_has_path_and_reason_F_4() -> None:
    losses = Losses()
    losses.add("tools[2]", "web_search", "chat has no hosted tools")
    losses.add("input[0]", "a name")
    assert [str(loss) for loss in losses] == ["tools[2]: web_search (chat has no hosted tools)", "input[0]: a name"]
    assert "tools[2]" in repr(losses)


@pytest.mark.parametrize("dialect", get_args(ServerDialectName))
def test_loss_has_the_name_of_the_client_without_the_prefix_of_the_hub(dialect: str) -> None:
    """C7: the prefix is a matter of the hub. Names that a client chose stay."""
    losses = Losses()
    losses.add(f"{dialect}:seed", f"the field '{dialect}:seed'")
    losses.add(f"{dialect}:body.top", f"the unknown field '{dialect}:body.top'")
    losses.add("tools[0]", f"a tool of type '{dialect}:search'")
    losses.add("output[0]", f"the call of '{dialect}:send'")
    losses.add(f"tools[0].parameters.{dialect}:send", "the keyword 'a'")
    assert [(loss.path, loss.what) for loss in losses] == [
        ("seed", "the field 'seed'"),
        ("top", "the unknown field 'top'"),
        ("tools[0]", "a tool of type 'search'"),
        ("output[0]", f"the call of '{dialect}:send'"),
        (f"tools[0].parameters.{dialect}:send", "the keyword 'a'"),
    ]


def numbered(start: int, stop: int) -> Losses:
    losses = Losses()
    for number in range(start, stop):
        losses.add(f"tools[{number}]", "a tool")
    return losses


def test_losses_over_the_limit_are_only_counted() -> None:
    """Faults: a request or a stream with a million losses does not keep a million entries."""
    assert list(numbered(0, MAX_LISTED_LOSSES))[-1].path == f"tools[{MAX_LISTED_LOSSES - 1}]"
    losses = numbered(0, MAX_LISTED_LOSSES + 500)
    assert len(losses) == len(list(losses)) == MAX_LISTED_LOSSES + 1
    assert [loss.path for loss in losses] == [*(f"tools[{number}]" for number in range(MAX_LISTED_LOSSES)), "..."]
    assert list(losses)[-1].what == "up to 500 more losses, which are not listed"
    assert "500 more" in repr(losses)


def test_listed_loss_that_is_repeated_is_not_counted_again() -> None:
    losses = numbered(0, MAX_LISTED_LOSSES)
    losses.add("tools[0]", "a tool")
    losses.extend(numbered(0, 10))
    assert len(losses) == MAX_LISTED_LOSSES


def test_extended_losses_have_the_same_limit() -> None:
    losses = numbered(0, 10)
    losses.extend(numbered(10, MAX_LISTED_LOSSES))
    assert len(losses) == MAX_LISTED_LOSSES
    losses.extend(numbered(MAX_LISTED_LOSSES - 1, 2 * MAX_LISTED_LOSSES + 7))
    assert list(losses)[MAX_LISTED_LOSSES - 1].path == f"tools[{MAX_LISTED_LOSSES - 1}]"
    assert list(losses)[-1].what == f"up to {MAX_LISTED_LOSSES + 7} more losses, which are not listed"
    empty = Losses()
    empty.extend(losses)
    assert list(empty) == list(losses)


def test_texts_of_a_loss_are_truncated_at_the_limit() -> None:
    losses = Losses()
    losses.add("p" * MAX_TEXT_LENGTH, "w" * (MAX_TEXT_LENGTH + 1), "y" * (10 * MAX_TEXT_LENGTH))
    (loss,) = losses
    assert loss == Loss("p" * MAX_TEXT_LENGTH, "w" * (MAX_TEXT_LENGTH - 1) + "…", "y" * (MAX_TEXT_LENGTH - 1) + "…")
