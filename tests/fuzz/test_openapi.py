"""Requests generated from our own OpenAPI document by schemathesis, valid and invalid, against a running gateway.

Every answer has a status and a form that the document names; none is a 5xx of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
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
from tests.fuzz import answer_checks
from tests.fuzz.cases import CASES
from tests.running import BOUND, Running, one_upstream, running

from antiphon import testing
from antiphon.config import StoreConfig
from antiphon.testing import ChatServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."))
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
    with TemporaryDirectory() as folder, ChatServer(lambda _: HELLO) as upstream:
        config = msgspec.structs.replace(
            one_upstream(upstream.base_url), store=StoreConfig(url=f"sqlite:///{folder}/antiphon.db")
        )
        with running(config) as gateway:
            yield gateway


@pytest.fixture(scope="module")
def document(gateway: Running) -> Any:
    return schemathesis.openapi.from_dict(gateway.get("/openapi.json").json())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_to_turns_match_the_openapi_document(gateway: Running, document: Any, mode: GenerationMode) -> None:
    asked = fuzzed(document["/v1/responses"]["POST"], mode, gateway.url)
    # Valid requests are generated quickly; invalid ones take six times as long.
    share = 2 if mode is GenerationMode.POSITIVE else 6
    settings(few, max_examples=few.max_examples // share + 1)(asked)()


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/openapi.json"])
def test_answers_of_other_paths_match_the_openapi_document(gateway: Running, document: Any, path: str) -> None:
    asked = fuzzed(document[path]["GET"], GenerationMode.POSITIVE, gateway.url)
    settings(few, max_examples=5)(asked)()


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "messages"),
        ("/v1beta/models/{model}:generateContent", "gemini"),
        ("/v1beta/models/{model}:streamGenerateContent", "gemini"),
        ("/v1beta/models/{model}:countTokens", "gemini"),
    ],
)
def test_answers_to_other_dialects_match_the_openapi_document(
    gateway: Running, document: Any, path: str, dialect: str
) -> None:
    """API-6: errors in their own form too. The document says only that their bodies are objects."""
    asked = fuzzed(document[path]["POST"], GenerationMode.POSITIVE, gateway.url, dialect=dialect)
    settings(few, max_examples=few.max_examples // 12 + 1)(asked)()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(
    ("path", "method"),
    [("/v1/responses/{id}", "GET"), ("/v1/responses/{id}/input_items", "GET"), ("/v1/responses/{id}", "DELETE")],
)
def test_answers_about_stored_responses_match_the_openapi_document(
    gateway: Running, document: Any, path: str, method: str, is_stored: bool, mode: GenerationMode
) -> None:
    """API-1: for a stored id, and for any id."""

    def stored_id() -> str | None:
        return str(gateway.post({"model": "mock-1", "input": "Hi"}).json()["id"]) if is_stored else None

    asked = fuzzed(document[path][method], mode, gateway.url, stored_id)
    settings(few, max_examples=few.max_examples // 4 + 1)(asked)()


def fuzzed(
    operation: Any,
    mode: GenerationMode,
    url: str,
    stored_id: Callable[[], str | None] = lambda: None,
    dialect: str = "responses",
) -> Callable[[], None]:
    """Sends requests that the document allows, or forbids; `known` returns the id of a stored response."""

    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and case.body.get("stream") is True:
            del case.body["stream"]  # other tests check streams with the grammar
        if isinstance(case.query, dict):
            case.query.pop("stream", None)
        if id := stored_id():
            case.path_parameters = {"id": id}
        answer = case.call(base_url=url, timeout=BOUND)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code != 200:
            answer_checks.check_error(dialect, answer.status_code, answer.content)

    asked: Callable[[], None] = ask
    return asked
