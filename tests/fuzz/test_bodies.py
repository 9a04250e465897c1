"""Damaged bodies of real clients of every dialect, without sockets: refused with a 4xx in the form of that dialect, or
translated to a request that an upstream can decode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fuzz import answer_checks, corpus
from tests.fuzz.cases import batches, case
from tests.fuzz.mutate import damaged_json
from tests.gateway.scripted import target

from antiphon.dialects import responses
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError
from antiphon.gateway.client_body import request_at_path
from antiphon.gateway.turn_data import prepare_request
from antiphon.gateway.upstreams import Target
from antiphon.protocol import codec
from antiphon.protocol.request import Request

pytestmark = pytest.mark.without_coverage


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@pytest.mark.parametrize("client", corpus.BODIES)
def test_undamaged_body_is_accepted(client: str, dialect: str) -> None:
    request, _ = responses.request_to_hub(corpus.BODIES[client])
    assert prepare_request(request, target(dialect).plan_translation()).body


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@pytest.mark.parametrize("client", corpus.OTHER_BODIES, ids="-".join)
def test_undamaged_body_of_another_dialect_is_accepted(client: tuple[Any, str], dialect: str) -> None:
    assert prepare_request(read(client, corpus.OTHER_BODIES[client]), target(dialect).plan_translation()).body


@batches(10)
def test_damaged_body_is_refused_or_forwarded_as_valid_json(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            damaged = damaged_json(chance.choice(list(corpus.BODIES.values())), chance)
            check_body(("responses", ""), damaged, chance.choice(corpus.targets()))


@batches(12)
def test_damaged_body_of_another_dialect_is_refused_or_forwarded_as_valid_json(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            client, body = chance.choice(list(corpus.OTHER_BODIES.items()))
            check_body(client, damaged_json(body, chance), chance.choice(corpus.targets()))


def read(client: tuple[Any, str], body: bytes) -> Request:
    """A body as its endpoint decodes it."""
    return request_at_path(corpus.paths_of(client)[0].partition("?")[0], CLIENT_DIALECTS[client[0]], body)[0]


def check_body(client: tuple[Any, str], damaged: bytes, upstream: Target) -> None:
    dialect = client[0]
    try:
        request = read(client, damaged)
        prepared = prepare_request(request, upstream.plan_translation())
    except ApiError as error:
        check_refusal(dialect, error)
        return
    # A strict decoder accepts it: no NaN, no lone surrogate, no excessive nesting.
    json.loads(prepared.body.decode(), parse_constant=_refuse)
    if dialect == "responses":  # tool names that the hub's own clients may not use are mapped on the way
        again, _ = responses.request_to_hub(codec.encode(request))
        assert again == request


def check_refusal(dialect: Any, error: ApiError) -> None:
    status, body = CLIENT_DIALECTS[dialect].error_from_hub(error)
    assert status < 500, error
    answer_checks.check_error(dialect, status, body)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
