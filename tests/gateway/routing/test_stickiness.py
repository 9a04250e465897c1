"""Which target a conversation returns to, how long."""

from __future__ import annotations

import pytest
from tests.gateway.routing.making import at, make_route

from antiphon.gateway.routing import stickiness
from antiphon.gateway.routing.facts import RequestFacts
from antiphon.gateway.routing.stickiness import (
    Session,
    StickyTargets,
    cache_seconds,
    make_session,
    target_with_label,
)

FACTS = RequestFacts(prompt_cache_key="k", conversation_id="conv_1", opening="o")


def test_strongest_identification_is_the_key() -> None:
    """A chain, then a conversation, the session of an agent, a cache key, and the opening."""
    full = make_session("alice", "m", "resp_1", FACTS, "s")
    keys = [
        full.key,
        Session(owner="alice", model="m", conversation_id="conv_1", header="s", prompt_cache_key="k").key,
        Session(owner="alice", model="m", header="s", prompt_cache_key="k", opening="o").key,
        Session(owner="alice", model="m", prompt_cache_key="k", opening="o").key,
        Session(owner="alice", model="m", opening="o").key,
    ]
    assert len(set(keys)) == 5
    assert full.key == full.response_key("resp_1")
    assert keys[3] == Session(owner="alice", model="m", prompt_cache_key="k", opening="other").key


@pytest.mark.parametrize("other", [{"owner": "bob"}, {"model": "n"}])
def test_sessions_of_other_owners_and_models_have_other_keys(other: dict[str, str]) -> None:
    names = {"owner": "alice", "model": "m"}
    assert Session(**names, header="s").key != Session(**{**names, **other}, header="s").key


def test_target_is_remembered_as_long_as_its_cache_lives() -> None:
    targets = StickyTargets()
    targets.remember(b"k", "a/x", 300.0, 100.0)
    assert targets.find(b"k", 399.0) == "a/x"
    assert targets.find(b"k", 400.0) is None
    assert targets.find(b"k", 399.0) is None  # it is forgotten


def test_oldest_session_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stickiness, "MAX_SESSIONS", 2)
    targets = StickyTargets()
    for key in (b"a", b"b", b"a", b"c"):
        targets.remember(key, "t", 10.0, 0.0)
    assert [targets.find(key, 1.0) for key in (b"a", b"b", b"c")] == ["t", None, "t"]


def test_cache_lives_as_long_as_the_client_or_the_provider_says() -> None:
    target = make_route(at("a")).targets[0]
    assert cache_seconds(target, RequestFacts()) == 300.0
    assert cache_seconds(target, RequestFacts(cache_seconds=3600.0)) == 3600.0


def test_target_is_found_by_its_label() -> None:
    route = make_route(at("a"), at("b", 2))
    assert target_with_label(route, "b/x") is route.targets[1]
    assert target_with_label(route, "c/x") is None
    assert target_with_label(route, None) is None
