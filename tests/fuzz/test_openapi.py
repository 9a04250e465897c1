"""Requests made from our own OpenAPI document by schemathesis, valid ones and invalid ones, against a running gateway.

Every answer is one that the document names, in the form it gives; none is a 5xx of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.fuzz.cases import CASES
from tests.running import BOUND, Running, one_upstream, running

from antiphon import fakes
from antiphon.fakes import ChatServer, turn

HELLO = turn(fakes.text("Hel", "lo."))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
few = settings(max_examples=max(1, CASES // 100), suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def document(gateway: Running) -> Any:
    return schemathesis.openapi.from_dict(gateway.get("/openapi.json").json())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_what_is_answered_to_a_turn_is_what_the_document_says(gateway: Running, document: Any, mode: GenerationMode) -> None:
    asked = fuzzed(document["/v1/responses"]["POST"], mode, gateway.url)
    # Valid ones are quickly made; invalid ones take six times as long.
    (few if mode is GenerationMode.POSITIVE else settings(few, max_examples=few.max_examples // 4 + 1))(asked)()


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/openapi.json"])
def test_what_is_answered_elsewhere_is_what_the_document_says(gateway: Running, document: Any, path: str) -> None:
    asked = fuzzed(document[path]["GET"], GenerationMode.POSITIVE, gateway.url)
    settings(few, max_examples=5)(asked)()


def fuzzed(operation: Any, mode: GenerationMode, url: str) -> Callable[[], None]:
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and case.body.get("stream") is True:
            del case.body["stream"]  # the form of streams is judged by the grammar, elsewhere
        answer = case.call(base_url=url, timeout=BOUND)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code != 200:
            assert set(json.loads(answer.content)) == {"error"}

    asked: Callable[[], None] = ask
    return asked
