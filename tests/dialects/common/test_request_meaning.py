"""`dialects/common/request_meaning`: two forms of one request mean the same, and two requests do not."""

from __future__ import annotations

import pytest
from msgspec import Raw

from antiphon.dialects.common.request_meaning import meaning_of
from antiphon.protocol.content import InputText, OutputTextParam, UrlCitationParam
from antiphon.protocol.items import FunctionCallOutputParam, MessageParam, UnknownItem
from antiphon.protocol.request import Request, TextFormat, TextParam
from antiphon.protocol.tools import FunctionToolParam, WebSearchTool

READ = FunctionToolParam(name="read")
WRITE = FunctionToolParam(name="write", parameters={"type": "object", "properties": {"a": {}}}, strict=True)
USER = MessageParam(role="user", content="Hi")
MARKED = InputText(text="Hi", extra={"cache_control": Raw(b'{"type":"ephemeral"}')})
CITED = OutputTextParam(text="Hi", annotations=[UrlCitationParam(start_index=0, end_index=1, url="u", title="t")])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Request(input=[USER], top_p=None, metadata={}, tools=[]), Request(input=[USER])),
        (Request(input=[USER], parallel_tool_calls=True, top_logprobs=0), Request(input=[USER])),
        (Request(input=[USER], text=TextParam(format=TextFormat())), Request(input=[USER])),
        (Request(input=[USER]), Request(input=[MessageParam(role="user", content=[InputText(text="Hi")])])),
        (
            Request(input=[MessageParam(role="user", content=[InputText(text="a"), InputText(text="b")])]),
            Request(input=[MessageParam(role="user", content="a\nb")]),
        ),
        (
            Request(input=[FunctionCallOutputParam(call_id="c", output="ok")]),
            Request(input=[FunctionCallOutputParam(call_id="c", output=[InputText(text="ok")])]),
        ),
        (
            Request(input=[MessageParam(role="user", content="Hi", extra={"unknown": Raw(b"1")})]),
            Request(input=[USER]),
        ),
        (
            Request(instructions="Be brief.", input="Hi"),
            Request(input=[MessageParam(role="system", content="Be brief."), USER]),
        ),
        (Request(instructions="Be brief."), Request(input=[MessageParam(role="system", content="Be brief.")])),
        (
            Request(tools=[READ, WRITE]),
            Request(tools=[WRITE, FunctionToolParam(name="read", parameters={}, strict=False, defer_loading=False)]),
        ),
    ],
)
def test_forms_of_one_request_mean_the_same(left: Request, right: Request) -> None:
    assert meaning_of(left) == meaning_of(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Request(input=[USER]), Request(input=[MessageParam(role="user", content=[MARKED])])),
        (Request(input=[USER]), Request(input=[MessageParam(role="user", content=[CITED])])),
        (Request(input=[USER]), Request(input=[MessageParam(role="user", content="Ho")])),
        (Request(input=[USER]), Request(input=[USER], store=False)),
        (Request(input=[USER]), Request(input=[USER], extra={"chat:seed": Raw(b"1")})),
        (
            Request(input=[UnknownItem(kind="a", raw=Raw(b'{"type":"a"}'))]),
            Request(input=[UnknownItem(kind="a", raw=Raw(b'{"type":"a","b":1}'))]),
        ),
        (Request(tools=[READ]), Request(tools=[WRITE])),
        (Request(tools=[READ]), Request(tools=[WebSearchTool()])),
    ],
)
def test_different_requests_mean_different_things(left: Request, right: Request) -> None:
    assert meaning_of(left) != meaning_of(right)
