"""Losses: kept once, in the order in which they were found, and told in words (F-4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.losses import Loss, Losses

LOSSES = st.lists(st.tuples(st.sampled_from(["tools[0]", "input[2]"]), st.sampled_from(["a", "b"]), st.sampled_from(["", "why"])))


@given(LOSSES, LOSSES)
def test_every_loss_is_kept_once_in_the_order_in_which_it_was_found_F_4(
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


def test_a_loss_is_told_with_its_place_and_its_reason_F_4() -> None:
    losses = Losses()
    losses.add("tools[2]", "web_search", "chat has no hosted tools")
    losses.add("input[0]", "a name")
    assert [str(loss) for loss in losses] == ["tools[2]: web_search (chat has no hosted tools)", "input[0]: a name"]
    assert "tools[2]" in repr(losses)
