"""`gateway/turn_data`: the translation of a request for its upstream is a pure function of data."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from msgspec import Raw
from tests.fuzz import corpus
from tests.gateway.scripted import target

from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ClientFault, UnsupportedParameter
from antiphon.gateway.client_body import request_at_path
from antiphon.gateway.turn_data import PreparedRequest, prepare_request, prepare_retry
from antiphon.gateway.upstreams import Target, TranslationPlan
from antiphon.protocol import codec
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.tools import FunctionToolParam

CLIENT_BODIES = {("responses", name): body for name, body in corpus.BODIES.items()} | corpus.OTHER_BODIES


def prepare_body(dialect: Any, body: bytes, plan: TranslationPlan) -> PreparedRequest | str:
    """From the bytes of a client to the bytes for an upstream; or the message of the refusal."""
    path = corpus.PATHS[dialect][0].partition("?")[0]
    try:
        return prepare_request(request_at_path(path, CLIENT_DIALECTS[dialect], body)[0], plan)
    except ClientFault as error:
        return str(error)


def content(prepared: PreparedRequest | str) -> Any:
    if isinstance(prepared, str):
        return prepared
    requests = (prepared.request, prepared.upstream_request, prepared.retry_source)
    return prepared.plan, prepared.body, list(prepared.losses), [codec.encode(request) for request in requests]


@pytest.mark.parametrize("upstream", corpus.targets(), ids=lambda target: target.upstream.profile.name)
def test_plan_and_prepared_request_can_be_pickled(upstream: Target) -> None:
    plan = upstream.plan_translation(is_stored=True)
    for (dialect, _), body in CLIENT_BODIES.items():
        prepared = prepare_body(dialect, body, plan)
        assert content(prepare_body(dialect, body, pickle.loads(pickle.dumps(plan)))) == content(prepared)
        assert content(pickle.loads(pickle.dumps(prepared))) == content(prepared)


def test_retry_is_prepared_only_without_a_part_that_the_request_has() -> None:
    plan = target("chat").plan_translation()
    request = codec.decode_request(b'{"model": "m", "input": "Hi"}')
    assert prepare_retry(request, plan, ["reasoning"]) is None
    assert prepare_retry(request, plan, ["encrypted_reasoning"]) is None
    assert prepare_retry(request, target("messages").plan_translation(), ["encrypted_reasoning"]) is None


@pytest.mark.io
def test_request_can_be_prepared_in_another_process() -> None:
    plans = [target.plan_translation() for target in corpus.targets()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        for (dialect, _), body in CLIENT_BODIES.items():
            results = list(pool.map(prepare_body, [dialect] * len(plans), [body] * len(plans), plans))
            assert list(map(content, results)) == [content(prepare_body(dialect, body, plan)) for plan in plans]


def test_thread_needs_a_store_and_offers_its_first_tools() -> None:
    """API-7."""
    request = Request(
        model="m",
        input=[AdditionalTools(tools=[FunctionToolParam(name="f")]), MessageParam(role="user", content="Hi")],
        store=True,
        extra={"messages:thread": Raw(b'{"type":"create"}')},
    )
    plan = target().plan_translation(is_stored=True)
    prepared = prepare_request(request, plan)
    assert [tool["function"]["name"] for tool in json.loads(prepared.body)["tools"]] == ["f"]
    assert list(prepared.losses) == []
    with pytest.raises(UnsupportedParameter, match="thread: the response is not stored here"):
        prepare_request(request, target().plan_translation())
