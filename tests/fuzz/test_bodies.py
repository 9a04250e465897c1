"""Damaged bodies of real clients, without sockets: refused with a 4xx, or made into a request that an upstream can read."""

from __future__ import annotations

import json

import pytest
from tests.fuzz import corpus
from tests.fuzz.cases import batches, case
from tests.fuzz.mutate import damaged_json
from tests.gateway.scripted import target

from antiphon.dialects import responses
from antiphon.errors import ApiError
from antiphon.gateway.routes import Target
from antiphon.gateway.turn import prepare
from antiphon.protocol import codec


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("client", corpus.BODIES)
def test_undamaged_it_is_taken(client: str, dialect: str) -> None:
    request, _ = responses.request_to_hub(corpus.BODIES[client])
    assert prepare(request, target(dialect)).body


@batches(20)
def test_a_damaged_body_is_refused_or_sent_on_whole(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            damaged = damaged_json(chance.choice(list(corpus.BODIES.values())), chance)
            check_body(damaged, chance.choice(corpus.targets()))


def check_body(damaged: bytes, upstream: Target) -> None:
    try:
        request, _ = responses.request_to_hub(damaged)
        prepared = prepare(request, upstream)
    except ApiError as error:
        check_refusal(error)
        return
    # Whoever reads strictly can read it: no NaN, no lone surrogate, nothing deeper than others go.
    json.loads(prepared.body.decode(), parse_constant=_refuse)
    again, _ = responses.request_to_hub(codec.encode(request))
    assert again == request


def check_refusal(error: ApiError) -> None:
    status, body = responses.error_from_hub(error)
    assert 400 <= status < 500, error
    assert len(body) < 4000, "an error that long is an echo"


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
