"""`gateway/planning`: what a turn asks to be done with its conversation, and whether it is worth it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport, target
from tests.gateway.test_compactor import SEAL, asked, stamps
from tests.gateway.test_conversation_steps import call, output, says

from antiphon.config import Config
from antiphon.errors import ApiError, UnsupportedParameter
from antiphon.gateway.managed_turn import ContextPlan
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.planning import ContextPlanner, needs_context_plan
from antiphon.gateway.routes import Routes
from antiphon.gateway.sealing import Seal
from antiphon.gateway.token_estimate import estimate_request
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items

LONG = "word " * 400
TRIGGER = {"type": "compaction_trigger"}


def threshold(tokens: Any) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}


def plan(request: Request, *, context: int | None = None, seal: Seal = SEAL) -> tuple[ContextPlan, list[str]]:
    listed = {"data": [{"id": "m", "context_length": context}]}
    transport = ScriptedTransport(ScriptedAnswer([msgspec.json.encode(listed)], JSON))
    models = ModelCatalog(Routes(Config(), {}, {}), transport, lambda: 0.0)
    losses, own = Losses(), input_items(request)
    planner = ContextPlanner(seal=seal, models=models, stamps=stamps())
    made = asyncio.run(planner.make_plan(request, own, own, target(), "alice", losses))
    return made, [str(loss) for loss in losses]


def test_most_turns_ask_for_nothing_of_the_kind() -> None:
    assert not needs_context_plan(asked(says("user")), None)
    assert not needs_context_plan(
        asked(says("user"), truncation="disabled", context_management=[]), input_items(asked(says("user")))
    )
    assert needs_context_plan(asked(truncation="auto"), None)
    assert needs_context_plan(asked(**threshold(5)), None)
    assert needs_context_plan(asked(), input_items(asked(TRIGGER, says("user"))))


def test_a_trigger_asks_for_a_compaction_and_nothing_else() -> None:
    made, _ = plan(asked(says("user"), TRIGGER, **threshold(1)))
    assert made.only_compacts
    assert made.compactor is not None


@pytest.mark.parametrize("items", [[TRIGGER, says("user")], [says("user"), TRIGGER, TRIGGER]])
def test_a_trigger_comes_last(items: list[dict[str, Any]]) -> None:
    place = items.index(TRIGGER)
    with pytest.raises(ApiError, match=rf"input\[{place}\]: a compaction_trigger must be the last item") as caught:
        plan(asked(*items))
    assert (caught.value.status, caught.value.param) == (400, f"input[{place}]")


def test_a_conversation_is_compacted_beyond_its_threshold() -> None:
    items = [says("user", LONG), says("assistant", LONG), says("user", "x")]
    tokens = estimate_request(asked(*items))
    made, losses = plan(asked(*items, **threshold(tokens - 1)))
    assert (made.compactor is not None, made.only_compacts, made.threshold, losses) == (True, False, tokens - 1, [])
    assert plan(asked(*items, **threshold(tokens)))[0].compactor is None


def test_of_several_thresholds_the_lowest_counts() -> None:
    entries = [{"type": "compaction", "compact_threshold": size} for size in (9000, 1000, 5000)]
    assert plan(asked(says("user"), context_management=entries))[0].threshold == 1000


def test_without_a_threshold_most_of_the_context_is_one() -> None:
    bare = {"context_management": [{"type": "compaction"}]}
    assert plan(asked(says("user"), **bare), context=1000) == (plan(asked(says("user"), **bare), context=1000)[0], [])
    assert plan(asked(says("user"), **bare), context=1000)[0].threshold == 800
    made, losses = plan(asked(says("user"), **bare))
    assert made.threshold is None
    assert [loss.partition(":")[0] for loss in losses] == ["context_management[0]"]


def test_nothing_is_compacted_if_that_would_hardly_help() -> None:
    """Else every turn of a conversation with long rules would begin with a summary of nothing."""
    for items in (
        [says("user", LONG)],
        [says("system", LONG * 5), says("user", "x"), says("assistant", "y"), says("user", "z")],
    ):
        assert plan(asked(*items, **threshold(100)))[0].compactor is None


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ({"type": "clear_tool_uses"}, "context_management[0].type"),
        ({}, "context_management[0].type"),
        ({"type": "compaction", "compact_threshold": 0}, "context_management[0].compact_threshold"),
        ({"type": "compaction", "compact_threshold": True}, "context_management[0].compact_threshold"),
        ({"type": "compaction", "compact_threshold": "many"}, "context_management[0].compact_threshold"),
    ],
)
def test_invalid_context_management_is_refused(entry: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        plan(asked(says("user"), context_management=[entry]))
    assert (caught.value.status, caught.value.param) == (400, param)


def test_who_cannot_seal_says_so_before_anybody_is_asked() -> None:
    def no_key() -> list[bytes]:
        raise UnsupportedParameter("no key")

    with pytest.raises(UnsupportedParameter):
        plan(asked(says("user"), TRIGGER), seal=Seal(no_key))
    assert plan(asked(says("user"), **threshold(1000)), seal=Seal(no_key))[0].compactor is None  # nobody needs one here


def test_truncation_cuts_what_is_longer_than_the_context_that_is_known() -> None:
    """REQ-2."""
    items = [says("user", LONG), call("a"), output("a"), says("assistant", LONG), says("user", "x")]
    made, losses = plan(asked(*items, truncation="auto"), context=estimate_request(asked(*items)))
    assert made.truncates
    assert len(input_items(made.request)) < 5
    assert len(made.sealed_items) == 5
    assert len(losses) == 1
    made, losses = plan(asked(*items, truncation="auto"))
    assert (len(input_items(made.request)), losses) == (5, [])  # unknown: nothing is done


def test_a_trigger_alone_has_nothing_to_compact() -> None:
    empty = asked()
    own = input_items(asked(TRIGGER))
    models = ModelCatalog(Routes(Config(), {}, {}), ScriptedTransport(ScriptedAnswer([b"{}"], JSON)), lambda: 0.0)
    with pytest.raises(ApiError) as caught:
        asyncio.run(
            ContextPlanner(seal=SEAL, models=models, stamps=stamps()).make_plan(
                empty, own, own, target(), "alice", Losses()
            )
        )
    assert (caught.value.code, caught.value.param) == ("missing_field", "input")
