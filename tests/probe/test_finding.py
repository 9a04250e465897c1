"""Whether an answer shows the effect of a setting."""

from __future__ import annotations

import pytest

from antiphon.probe.finding import (
    Inspection,
    Observation,
    calls_no_tool,
    calls_tool,
    calls_two_tools,
    counts_tools,
    excerpt,
    has_effect,
    is_counted,
    is_json,
    is_person_json,
    reports_truncation,
)
from antiphon.protocol.content import OutputText
from antiphon.protocol.items import FunctionCall, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage, make_initial_response
from antiphon.protocol.status import ItemStatus, ResponseStatus


def seen(text: str = "", *, called: int = 0, tokens: int | None = None, cut: bool = False) -> Observation:
    message = Message(
        id="m", status=ItemStatus.COMPLETED, role="assistant", content=[OutputText(text=text, annotations=[])]
    )
    output: list[Item] = [message] if text else []
    output += [FunctionCall(id="f", call_id="c", name="f", arguments="{}", status=ItemStatus.COMPLETED)] * called
    response = make_initial_response(Request(), id="r", created_at=0)
    fields = {name: getattr(response, name) for name in Response.__struct_fields__}
    usage = (
        None
        if tokens is None
        else Usage(
            input_tokens=tokens,
            output_tokens=1,
            total_tokens=tokens + 1,
            input_tokens_details=InputTokensDetails(cached_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
    )
    status = ResponseStatus.INCOMPLETE if cut else ResponseStatus.COMPLETED
    return Observation(
        response=Response(**{**fields, "output": output, "usage": usage, "status": status}),
        baseline_tokens=10,
        baseline_text="Hi.",
    )


@pytest.mark.parametrize(
    ("inspection", "answer", "effect"),
    [
        (is_counted, seen("The lamp.", tokens=10), True),
        (is_counted, seen("No.", tokens=10), False),
        (is_counted, seen("No.", tokens=90), True),
        (is_counted, seen("No."), True),
        (has_effect, seen("Hi.", tokens=10), False),
        (has_effect, seen("A square.", tokens=10), True),
        (has_effect, seen("Hi.", tokens=11), True),
        (calls_tool, seen(called=1), True),
        (calls_tool, seen("No."), False),
        (calls_tool, seen("I", cut=True), True),
        (calls_two_tools, seen(called=1), False),
        (calls_two_tools, seen(called=2), True),
        (calls_no_tool, seen(called=1), False),
        (calls_no_tool, seen("Hi."), True),
        (counts_tools, seen(called=1), True),
        (counts_tools, seen("Hi.", tokens=12), False),
        (counts_tools, seen("Hi.", tokens=12, cut=True), False),
        (counts_tools, seen("Hi.", tokens=60), True),
        (is_json, seen("[1]"), False),
        (is_json, seen("{}"), True),
        (is_json, seen("{", cut=True), True),
        (is_person_json, seen('{"name":"a","age":1}'), True),
        (is_person_json, seen('{"name":"a","age":"1"}'), False),
        (is_person_json, seen("Alice."), False),
        (reports_truncation, seen("one", cut=True), True),
        (reports_truncation, seen("one"), False),
    ],
)
def test_effect_of_a_setting_is_detected_in_the_answer(
    inspection: Inspection, answer: Observation, effect: bool
) -> None:
    """D-4: accepted and ignored are distinguished by the answer."""
    assert inspection(answer)[0] is effect
    assert inspection(answer)[1]


def test_excerpt_shortens_long_answers() -> None:
    assert excerpt(b"a\n  b", 10) == "a b"
    assert excerpt("x" * 30, 10) == "x" * 10 + "…"
