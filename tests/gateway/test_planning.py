"""`gateway/planning`: the context management that a turn requests, and whether it is worthwhile."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport, target
from tests.gateway.test_compactor import SEAL, asked
from tests.gateway.test_conversation_steps import call, output, says

from antiphon.config import Config
from antiphon.dialects.common.token_estimate import estimate_request
from antiphon.errors import ApiError, UnsupportedParameter
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.planning import ContextPlan, plan_context
from antiphon.gateway.routes import Routes
from antiphon.gateway.sealing import Seal
from antiphon.gateway.turn_data import needs_context_plan
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
    made = asyncio.run(plan_context(request, own, own, seal, partial(models.context_size, target()), losses))
    return made, [str(loss) for loss in losses]


def test_plan_is_needed_only_for_truncation_threshold_or_trigger() -> None:
    assert not needs_context_plan(asked(says("user")), None)
    assert not needs_context_plan(
        asked(says("user"), truncation="disabled", context_management=[]), input_items(asked(says("user")))
    )
    assert needs_context_plan(asked(truncation="auto"), None)
    assert needs_context_plan(asked(**threshold(5)), None)
    assert needs_context_plan(asked(), input_items(asked(TRIGGER, says("user"))))


def test_trigger_plans_only_a_compaction() -> None:
    made, _ = plan(asked(says("user"), TRIGGER, **threshold(1)))
    assert made.only_compacts
    assert made.compacts


@pytest.mark.parametrize("items", [[TRIGGER, says("user")], [says("user"), TRIGGER, TRIGGER]])
def test_trigger_before_the_last_item_is_refused(items: list[dict[str, Any]]) -> None:
    place = items.index(TRIGGER)
    with pytest.raises(ApiError, match=rf"input\[{place}\]: a compaction_trigger must be the last item") as caught:
        plan(asked(*items))
    assert (caught.value.status, caught.value.param) == (400, f"input[{place}]")


def test_conversation_over_its_threshold_is_compacted() -> None:
    items = [says("user", LONG), says("assistant", LONG), says("user", "x")]
    tokens = estimate_request(asked(*items))
    made, losses = plan(asked(*items, **threshold(tokens - 1)))
    assert (made.compacts, made.only_compacts, made.threshold, losses) == (True, False, tokens - 1, [])
    assert plan(asked(*items, **threshold(tokens)))[0].compacts is False


def test_lowest_of_several_thresholds_counts() -> None:
    entries = [{"type": "compaction", "compact_threshold": size} for size in (9000, 1000, 5000)]
    assert plan(asked(says("user"), context_management=entries))[0].threshold == 1000


def test_default_threshold_is_most_of_the_context() -> None:
    bare = {"context_management": [{"type": "compaction"}]}
    assert plan(asked(says("user"), **bare), context=1000) == (plan(asked(says("user"), **bare), context=1000)[0], [])
    assert plan(asked(says("user"), **bare), context=1000)[0].threshold == 800
    made, losses = plan(asked(says("user"), **bare))
    assert made.threshold is None
    assert [loss.partition(":")[0] for loss in losses] == ["context_management[0]"]


def test_compaction_is_skipped_if_it_saves_little() -> None:
    """Otherwise every turn of a conversation with a long system prompt would start with a useless summary."""
    for items in (
        [says("user", LONG)],
        [says("system", LONG * 5), says("user", "x"), says("assistant", "y"), says("user", "z")],
    ):
        assert plan(asked(*items, **threshold(100)))[0].compacts is False


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


def test_missing_sealing_key_is_refused_before_the_upstream_call() -> None:
    def no_key() -> list[bytes]:
        raise UnsupportedParameter("no key")

    with pytest.raises(UnsupportedParameter):
        plan(asked(says("user"), TRIGGER), seal=Seal(no_key))
    assert plan(asked(says("user"), **threshold(1000)), seal=Seal(no_key))[0].compacts is False  # no key is needed here


def test_truncation_fits_the_input_to_a_known_context() -> None:
    """REQ-2."""
    items = [says("user", LONG), call("a"), output("a"), says("assistant", LONG), says("user", "x")]
    made, losses = plan(asked(*items, truncation="auto"), context=estimate_request(asked(*items)))
    assert made.truncates
    assert len(input_items(made.request)) < 5
    assert len(made.sealed_items) == 5
    assert len(losses) == 1
    made, losses = plan(asked(*items, truncation="auto"))
    assert (len(input_items(made.request)), losses) == (5, [])  # unknown: nothing is done


def test_trigger_without_input_is_refused() -> None:
    empty = asked()
    own = input_items(asked(TRIGGER))
    models = ModelCatalog(Routes(Config(), {}, {}), ScriptedTransport(ScriptedAnswer([b"{}"], JSON)), lambda: 0.0)
    with pytest.raises(ApiError) as caught:
        asyncio.run(plan_context(empty, own, own, SEAL, partial(models.context_size, target()), Losses()))
    assert (caught.value.code, caught.value.param) == ("missing_field", "input")
