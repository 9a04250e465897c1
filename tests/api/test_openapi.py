"""Our own OpenAPI document: it is valid, it describes what the server accepts and returns, and it names every error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.error_table import error_rows
from tests.generate import conversations
from tests.generate import events as lives_of
from tests.generate.schema import published, valid
from tests.generate.shapes import documents

from antiphon import __version__, sse
from antiphon.api.operation import Operation
from antiphon.api.routes import ALL_ROUTES, openapi_document
from antiphon.dialects import responses
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.model_catalog import Model, ModelList
from antiphon.protocol.codec import encode
from antiphon.protocol.events import ReasoningDelta, ReasoningDone, StreamEvent
from antiphon.protocol.losses import Loss
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

pytestmark = pytest.mark.without_coverage
DOCUMENT: dict[str, Any] = json.loads(openapi_document())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (path, method): operation for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
}
# The errors of the other endpoints have the form of the APIs that they belong to.
OTHERS = ("/api", "/v1/chat", "/v1/messages", "/v1/models/", "/v1/vscode", "/v1beta")
OWN = [(path, method) for path, method in OPERATIONS if not path.startswith(OTHERS)]
COMMON_ERRORS = {400, 403, 405, 408, 426, 431, 500, 503}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


VALIDATORS = {name: validator(name) for name in SCHEMAS}


def assert_valid(body: bytes | Any, name: str) -> None:
    value = json.loads(body) if isinstance(body, bytes) else body
    assert [error.message for error in VALIDATORS[name].iter_errors(value)] == []


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    match value:
        case dict():
            yield value
            for member in value.values():
                yield from nodes(member)
        case list():
            for member in value:
                yield from nodes(member)


def pointed_at(reference: str) -> Any:
    assert reference.startswith("#/")
    node = DOCUMENT
    for name in reference[2:].split("/"):
        node = node[name]
    return node


# Validity


def test_document_is_openapi_31_with_our_version() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == __version__
    assert openapi_document() is openapi_document()  # built once


def test_every_reference_resolves() -> None:
    references = [node["$ref"] for node in nodes(DOCUMENT) if isinstance(node.get("$ref"), str)]
    assert len(references) > 200
    for reference in references:
        assert pointed_at(reference)


def test_every_schema_is_used_and_valid() -> None:
    used = {node["$ref"].rsplit("/", 1)[1] for node in nodes(DOCUMENT) if isinstance(node.get("$ref"), str)}
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert re.fullmatch("[A-Za-z0-9._-]+", name)
        assert name in used
    for operation in OPERATIONS.values():
        for parameter in operation.get("parameters", []):
            Draft202012Validator.check_schema(parameter["schema"])


def test_every_operation_has_the_fields_that_openapi_requires() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids) == len(OPERATIONS)
    schemes = set(DOCUMENT["components"]["securitySchemes"])
    for operation in OPERATIONS.values():
        assert operation["summary"]
        for needed in operation.get("security", DOCUMENT["security"]):
            assert set(needed) <= schemes
        for status, answer in operation["responses"].items():
            assert re.fullmatch("[1-5][0-9]{2}", status)
            assert answer["description"]
            assert {"x-request-id"} <= set(answer["headers"])  # HTTP-8
            for kind in answer["content"]:
                assert kind in ("application/json", "application/x-ndjson", "text/event-stream", "text/plain")


def test_operation_without_description_is_refused() -> None:
    """A route cannot be added to the table without the description of its operation."""
    described = ALL_ROUTES["/health"].operations["GET"]
    for missing in ("id", "summary", "answer"):
        fields = {name: getattr(described, name) for name in ("id", "summary", "answer") if name != missing}
        with pytest.raises(TypeError, match=missing):
            Operation("GET", "/v1/new", described.endpoint, **fields)
    for route in ALL_ROUTES.values():
        for operation in route.operations.values():
            assert operation.id
            assert operation.summary
            assert operation.answer.description
            assert operation.answer.content


def test_path_parameters_are_those_of_the_path() -> None:
    for (path, _), operation in OPERATIONS.items():
        documented = [parameter for parameter in operation.get("parameters", []) if parameter["in"] == "path"]
        assert [parameter["name"] for parameter in documented] == re.findall(r"\{(\w+)\}", path)
        assert all(parameter["required"] for parameter in documented)


def test_operations_with_a_body_document_its_errors() -> None:
    for operation in OPERATIONS.values():
        assert ("requestBody" in operation) == ({"413", "415"} <= set(operation["responses"]))


def test_document_contains_no_internal_names() -> None:
    text = openapi_document().decode()
    assert not re.search(r"raw_fields|antiphon:raw|\b(?!UTF)[A-Z]{1,4}-\d+\b|msgspec|minProperties", text)


# Names, compared with the specification's


def test_shared_schemas_have_the_fields_of_the_specification() -> None:
    """HTTP-2 among them: every required field of the response is required here."""
    shared = 0
    for name, schema in published().items():
        parts = schema.get("allOf", [schema])
        properties = {key for part in parts for key in part.get("properties", {})}
        if name not in SCHEMAS or not properties:
            continue
        shared += 1
        assert properties <= set(SCHEMAS[name]["properties"]), name
        assert {key for part in parts for key in part.get("required", [])} <= set(SCHEMAS[name]["required"]), name
    assert shared > 55


def test_response_schema_requires_the_31_fields_of_the_specification() -> None:
    """HTTP-2."""
    required = published()["ResponseResource"]["required"]
    assert len(required) == 31
    assert set(required) <= set(SCHEMAS["ResponseResource"]["required"])


def test_stream_schema_lists_every_event_of_the_specification() -> None:
    offered = {option["$ref"].rsplit("/", 1)[1] for option in SCHEMAS["StreamingEvent"]["anyOf"]}
    assert {name for name in published() if name.endswith("StreamingEvent")} <= offered


# Bodies


@settings(max_examples=30)
@given(conversations.requests())
def test_generated_requests_match_the_schema(request: Request) -> None:
    assert_valid(encode(request), "CreateResponseBody")


@settings(max_examples=30)
@given(lives_of.responses())
def test_generated_responses_match_the_schema(response: Response) -> None:
    assert_valid(encode(response), "ResponseResource")


@settings(max_examples=15)
@given(lives_of.lives())
def test_generated_events_match_the_schema(life: list[StreamEvent]) -> None:
    for event in life:
        assert_valid(encode(event), "StreamingEvent")


AT: dict[str, Any] = {"sequence_number": 4, "item_id": "rs_1", "output_index": 0, "content_index": 0}


@pytest.mark.parametrize("event", [ReasoningDelta(**AT, delta="Hm"), ReasoningDone(**AT, text="Hm")])
def test_reasoning_events_of_the_default_style_are_described(event: ReasoningDelta | ReasoningDone) -> None:
    """API-6, STR-10."""
    (frame,) = sse.Decoder().feed(responses.EventsFromHub(Request()).feed(event))
    name = (
        "ResponseReasoningTextDeltaStreamingEvent"
        if frame.event.endswith("delta")
        else "ResponseReasoningTextDoneStreamingEvent"
    )
    assert_valid(frame.data, name)
    assert_valid(frame.data, "StreamingEvent")
    assert {"$ref": f"#/components/schemas/{name}"} in SCHEMAS["StreamingEvent"]["anyOf"]


@settings(max_examples=30)
@given(documents(Request))
def test_accepted_requests_with_unknown_fields_match_the_schema(document: Any) -> None:
    assert_valid(document | {"acme:field": 1}, "CreateResponseBody")


@settings(max_examples=30)
@given(documents(StreamEvent))
def test_accepted_events_match_the_schema(document: Any) -> None:
    assert_valid(document, "StreamingEvent")


@pytest.mark.parametrize(
    "name", ["CreateResponseBody", "ResponseResource", "ItemParam", "ItemField", "ResponsesToolParam", "Tool"]
)
def test_documents_valid_by_the_specification_are_valid_here(name: str) -> None:
    @settings(max_examples=20)
    @given(valid(name))
    def check(document: Any) -> None:
        limit = document.get("max_output_tokens") if isinstance(document, dict) else None
        assume(limit is None or limit < 2**31)  # the specification has no upper limit
        assert_valid(document, name)

    check()


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"temperature": "hot"},
        {"max_output_tokens": 3},
        {"input": [{"type": "message", "role": "nobody", "content": "x"}]},
        {"input": [{"type": "function_call", "name": "f"}]},
        {"input": [{"no type": 1}]},
        {"tools": [{"type": "function", "name": ""}]},
        {"metadata": {"k": "v" * 513}},
        {"text": {"format": {"type": "nothing"}}},
    ],
    ids=str,
)
def test_refused_requests_do_not_match_the_schema(document: Any) -> None:
    assert not VALIDATORS["CreateResponseBody"].is_valid(document)


def test_errors_models_and_losses_match_their_schemas() -> None:
    for error in (ApiError("x"), ClientFault("y", param="input[0]", status=413, code="request_too_large")):
        assert_valid(responses.error_from_hub(error)[1], "ErrorBody")
    assert_valid(msgspec.json.encode(ModelList(data=[Model(id="m", owned_by="lab")])), "ModelList")
    event = {"type": "antiphon:losses", "sequence_number": 3, "losses": [Loss("a", "b")]}
    assert_valid(msgspec.json.encode(event), "LossesStreamingEvent")
    assert_valid(msgspec.json.encode(event), "StreamingEvent")
    assert not VALIDATORS["ModelList"].is_valid({"data": [{"id": "m"}]})


# Errors


def test_every_path_documents_every_status() -> None:
    """ERR-2."""
    documented = {where: {int(status) for status in operation["responses"]} for where, operation in OPERATIONS.items()}
    assert documented == {
        ("/v1/responses", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/responses/compact", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/responses/{id}", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/responses/{id}", "delete"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/responses/{id}/cancel", "post"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/responses/{id}/input_items", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/embeddings", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/completions", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/conversations", "post"): {200, 401, 404, 413, 415} | COMMON_ERRORS,
        ("/v1/conversations/{id}", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/conversations/{id}", "post"): {200, 401, 404, 413, 415} | COMMON_ERRORS,
        ("/v1/conversations/{id}", "delete"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/conversations/{id}/items", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/conversations/{id}/items", "post"): {200, 401, 404, 413, 415} | COMMON_ERRORS,
        ("/v1/conversations/{id}/items/{item_id}", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/conversations/{id}/items/{item_id}", "delete"): {200, 401, 404} | COMMON_ERRORS,
        ("/v1/models", "get"): {200, 401} | COMMON_ERRORS,
        ("/v1/route", "post"): {200, 401, 404, 413, 415, 429} | COMMON_ERRORS,
        ("/v1/upstreams", "get"): {200, 401} | COMMON_ERRORS,
        ("/v1/usage", "get"): {200, 401, 404} | COMMON_ERRORS,
        ("/health", "get"): {200} | COMMON_ERRORS,
        ("/livez", "get"): {200} | COMMON_ERRORS,
        ("/readyz", "get"): {200} | COMMON_ERRORS,
        ("/openapi.json", "get"): {200} | COMMON_ERRORS,
        ("/metrics", "get"): {200, 401} | COMMON_ERRORS,
        ("/v1/responses/input_tokens", "post"): {200, 401, 404, 413, 415, 429} | COMMON_ERRORS,
        ("/", "get"): {200} | COMMON_ERRORS,
        ("/v1/chat/completions", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/messages", "post"): {200, 401, 404, 413, 415, 429, 502, 504, 529} | COMMON_ERRORS,
        ("/v1/messages/count_tokens", "post"): {200, 401, 404, 413, 415, 429} | COMMON_ERRORS,
        ("/api/chat", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/api/generate", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/api/embed", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/api/embeddings", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/api/show", "post"): {200, 401, 404, 413, 415} | COMMON_ERRORS,
        ("/api/tags", "get"): {200, 401} | COMMON_ERRORS,
        ("/api/version", "get"): {200, 401} | COMMON_ERRORS,
        ("/v1/vscode/chat", "post"): {200, 401, 404, 413, 415, 429, 502, 504} | COMMON_ERRORS,
        ("/v1/vscode/count_tokens", "post"): {200, 401, 404, 413, 415, 429} | COMMON_ERRORS,
        ("/v1/vscode/models", "get"): {200, 401} | COMMON_ERRORS,
        ("/v1beta/models", "get"): {200, 401} | COMMON_ERRORS,
        **{
            (f"/{version}/models/{{model}}{action}", method): {200, 401, 404, *more} | COMMON_ERRORS
            for version in ("v1", "v1beta")
            for action, method, more in (
                ("", "get", ()),
                (":generateContent", "post", (413, 415, 429, 502, 504)),
                (":streamGenerateContent", "post", (413, 415, 429, 502, 504)),
                (":countTokens", "post", (413, 415, 429)),
                (":embedContent", "post", (413, 415, 429, 502, 504)),
                (":batchEmbedContents", "post", (413, 415, 429, 502, 504)),
            )
        },
    }


@pytest.mark.parametrize("where", OWN, ids=" ".join)
def test_every_error_has_a_valid_example_of_each_code(where: tuple[str, str]) -> None:
    """ERR-1, ERR-2."""
    for status, answer in OPERATIONS[where]["responses"].items():
        if status == "200":
            continue
        [(kind, body)] = answer["content"].items()
        assert (kind, body["schema"]) == ("application/json", {"$ref": "#/components/schemas/ErrorBody"})
        assert body["examples"]
        for code, example in body["examples"].items():
            assert_valid(example["value"], "ErrorBody")
            assert example["value"]["error"]["code"] == code
            assert f"`{code}`" in answer["description"]


def test_response_headers_are_documented() -> None:
    answers = OPERATIONS["/v1/responses", "post"]["responses"]
    assert "Retry-After" in answers["429"]["headers"]
    assert "Retry-After" in answers["503"]["headers"]
    assert "Allow" in answers["405"]["headers"]
    assert "Antiphon-Losses" in answers["200"]["headers"]
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/vscode/chat"):
        answers = OPERATIONS[path, "post"]["responses"]
        assert "Retry-After" in answers["429"]["headers"]
        assert "Allow" in answers["405"]["headers"]
    assert "Retry-After" in OPERATIONS["/v1/messages", "post"]["responses"]["529"]["headers"]


def test_error_examples_match_the_table_of_errors() -> None:
    """ERR-2: the table in docs/errors.md has every error of this document, and no other."""
    examples = {
        (int(status), example["value"]["error"]["type"], code)
        for operation in OPERATIONS.values()
        for status, answer in operation["responses"].items()
        for code, example in answer["content"].get("application/json", {}).get("examples", {}).items()
    }
    assert examples == {(row.status, row.type, row.code) for row in error_rows() if row.status is not None}
