"""Helpers that read the content of a response."""

from __future__ import annotations

import pytest
from tests.client.conversing import client_of

from antiphon import testing
from antiphon.client import as_input, function_calls, output_text
from antiphon.testing import ResponsesServer, turn

pytestmark = pytest.mark.io


def test_response_content_is_read_and_sent_back() -> None:
    """ITEM-6: output is sent back unchanged."""
    reply = turn(testing.text("One ", "moment."), testing.tool_call("call_1", "look", '{"at": "it"}'))
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    with ResponsesServer([reply]) as server, client_of(server.base_url) as client:
        response = client.create("Look.", tools=[tool])
    assert output_text(response) == "One moment."
    assert [(call.name, call.arguments, call.call_id) for call in function_calls(response)] == [
        ("look", '{"at": "it"}', "call_1")
    ]
    assert [type(item).__name__ for item in as_input(response.output)] == ["MessageParam", "FunctionCallParam"]
