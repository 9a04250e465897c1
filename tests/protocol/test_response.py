"""The initial response of a turn: complete from the start, with the effective values of the request's settings
(HTTP-2)."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from tests.generate.schema import published, valid
from tests.generate.shapes import documents

from antiphon.errors import InvalidTransition
from antiphon.protocol.codec import decode_request, encode
from antiphon.protocol.content import OutputText, ReasoningText, Refusal
from antiphon.protocol.errors import Error
from antiphon.protocol.items import FunctionCall, Message, Reasoning
from antiphon.protocol.request import Request
from antiphon.protocol.response import IncompleteDetails, Response, make_initial_response
from antiphon.protocol.status import ItemStatus

# The values of settings that a request leaves out.
DEFAULTS: Final[dict[str, Any]] = {
    "previous_response_id": None,
    "instructions": None,
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "auto",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def opened(document: Any) -> Any:
    request = decode_request(json.dumps(document).encode())
    return json.loads(encode(make_initial_response(request, id="resp_1", created_at=7)))


@given(documents(Request))
def test_initial_response_has_31_fields_with_effective_values(document: Any) -> None:
    """HTTP-2."""
    response = opened(document)
    assert len(response.keys() - {"conversation"}) == 31
    assert {key: response[key] for key in ("id", "object", "created_at", "status")} == {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "status": "in_progress",
    }
    assert [response[key] for key in ("output", "error", "usage", "incomplete_details", "completed_at")] == [
        [],
        None,
        None,
        None,
        None,
    ]
    assert response["model"] == (document.get("model") or "")
    for name, default in DEFAULTS.items():
        value = document.get(name)
        assert response[name] == (
            default if value is None or (name == "previous_response_id" and not value) else value
        ), name


@given(st.data())
def test_initial_response_is_valid_by_the_published_schema(data: st.DataObject) -> None:
    """HTTP-2, for every request that is valid by the schema."""
    schemas = published()
    request = data.draw(valid("CreateResponseBody"))
    # The published schema allows only null; a requested schema is echoed anyway.
    format = schemas["JsonSchemaResponseFormat"]
    echoed = format | {"properties": format["properties"] | {"schema": {}}}
    components = {"schemas": schemas | {"JsonSchemaResponseFormat": echoed}}
    jsonschema.validate(opened(request), {"$ref": "#/components/schemas/ResponseResource", "components": components})


def test_identifying_settings_are_echoed() -> None:
    """REQ-5."""
    settings = {
        "metadata": {"k": "v"},
        "service_tier": "flex",
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "text": {"verbosity": "low"},
    }
    response = opened(settings)
    assert {key: response[key] for key in settings} == settings | {
        "text": {"format": {"type": "text"}, "verbosity": "low"}
    }


@pytest.mark.parametrize(
    ("text", "echo"),
    [
        (None, {"format": {"type": "text"}}),
        ({}, {"format": {"type": "text"}}),
        ({"format": None, "verbosity": None}, {"format": {"type": "text"}}),
        ({"format": {"type": "text", "x": 1}}, {"format": {"type": "text", "x": 1}}),
        (
            {"format": {"type": "json_object"}, "verbosity": "high"},
            {"format": {"type": "json_object"}, "verbosity": "high"},
        ),
        (
            {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            {
                "format": {
                    "type": "json_schema",
                    "name": "response",
                    "description": None,
                    "schema": {"type": "object"},
                    "strict": False,
                }
            },
        ),
        (
            {
                "format": {
                    "type": "json_schema",
                    "name": "n",
                    "description": "d",
                    "schema": {},
                    "strict": True,
                    "x": 1,
                },
                "y": 2,
            },
            {
                "format": {
                    "type": "json_schema",
                    "name": "n",
                    "description": "d",
                    "schema": {},
                    "strict": True,
                    "x": 1,
                },
                "y": 2,
            },
        ),
    ],
)
def test_text_format_is_echoed_with_all_its_fields(text: Any, echo: Any) -> None:
    """HTTP-2, REQ-1."""
    assert opened({"text": text})["text"] == echo


@pytest.mark.parametrize(
    ("reasoning", "echo"),
    [
        (None, None),
        ({}, {"effort": None, "summary": None}),
        ({"effort": "none", "summary": "auto", "x": 1}, {"effort": "none", "summary": "auto", "x": 1}),
    ],
)
def test_reasoning_is_echoed_with_all_its_fields(reasoning: Any, echo: Any) -> None:
    """HTTP-2."""
    assert opened({"reasoning": reasoning})["reasoning"] == echo


@pytest.mark.parametrize(
    ("tool", "echo"),
    [
        (
            {"type": "function", "name": "f"},
            {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None},
        ),
        (
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {},
                "strict": False,
                "defer_loading": True,
                "x": 1,
            },
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {},
                "strict": False,
                "defer_loading": True,
                "x": 1,
            },
        ),
        ({"type": "custom", "name": "c"}, {"type": "custom", "name": "c"}),
        ({"type": "acme:tool", "x": 1.0}, {"type": "acme:tool", "x": 1.0}),
    ],
)
def test_tools_are_echoed_whole(tool: Any, echo: Any) -> None:
    """HTTP-2: a function with every field, `strict` if unset; any other tool unchanged."""
    assert opened({"tools": [tool]})["tools"] == [echo]


@pytest.mark.parametrize(
    ("choice", "echo"),
    [
        (None, "auto"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "name": "f"}),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}], "x": 1},
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}], "mode": "auto", "x": 1},
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "custom", "name": "c"}], "mode": "none"},
            {"type": "allowed_tools", "tools": [{"type": "custom", "name": "c"}], "mode": "none"},
        ),
        ({"type": "web_search"}, {"type": "web_search"}),
    ],
)
def test_tool_choice_is_echoed(choice: Any, echo: Any) -> None:
    """HTTP-2, TOOL-2."""
    assert opened({"tool_choice": choice})["tool_choice"] == echo


def test_answering_model_may_differ_from_the_requested_model() -> None:
    assert make_initial_response(Request(model="asked"), id="r", created_at=0, model="answers").model == "answers"
    assert make_initial_response(Request(model=UNSET), id="r", created_at=0).model == ""


def test_response_returns_its_text_and_its_function_calls() -> None:
    response = replace(
        make_initial_response(Request(), id="resp_1", created_at=1),
        output=[
            Reasoning(id="rs_1", content=[ReasoningText(text="Hm.")], summary=[]),
            Message(
                id="msg_1",
                role="assistant",
                status=ItemStatus.COMPLETED,
                content=[_output_text("One "), Refusal(refusal="No."), _output_text("moment.")],
            ),
            FunctionCall(id="fc_1", call_id="call_1", name="look", arguments="{}", status=ItemStatus.COMPLETED),
        ],
    )
    assert response.output_text == "One moment."
    assert [call.name for call in response.function_calls] == ["look"]


def _output_text(text: str) -> OutputText:
    return OutputText(text=text, annotations=[], logprobs=[])


def _in_progress() -> Response:
    return make_initial_response(Request(model="m"), id="resp_1", created_at=5)


def test_response_completes_fails_or_is_incomplete_B_4() -> None:
    """Each returns a new response with its status, its reason and its time."""
    begun = _in_progress()
    completed = begun.complete()
    assert (completed.status, completed.completed_at, begun.status) == ("completed", 5, "in_progress")
    assert begun.complete(completed_at=9).completed_at == 9
    failed = begun.fail("server_error", "it broke")
    assert (failed.status, failed.error, failed.completed_at) == (
        "failed",
        Error(code="server_error", message="it broke"),
        None,
    )
    cut = begun.incomplete("max_output_tokens")
    assert (cut.status, cut.incomplete_details) == ("incomplete", IncompleteDetails(reason="max_output_tokens"))


def test_ended_response_cannot_end_again_B_4() -> None:
    with pytest.raises(InvalidTransition, match="the status is final"):
        _in_progress().complete().fail("server_error", "late")
