"""The keyword arguments of a request are the fields of a request."""

from __future__ import annotations

from antiphon.protocol.request import Request
from antiphon.protocol.request_fields import RequestFields, ToolRunFields


def test_request_fields_are_the_fields_of_a_request() -> None:
    assert RequestFields.__optional_keys__ == {*Request.__struct_fields__, "extra_fields"} - {
        "input",  # a positional argument
        "stream",  # `create` and `stream` are separate methods
        "extra",
    }
    assert not RequestFields.__required_keys__


def test_tool_run_fields_lack_the_limit_that_the_run_has_itself() -> None:
    assert RequestFields.__optional_keys__ - ToolRunFields.__optional_keys__ == {"max_tool_calls"}
