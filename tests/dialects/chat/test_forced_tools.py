"""Forced tools as a schema of the text: the request, and the text that is read as a call."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.counting import calls_of
from tests.dialects.chat.reading import chunk, summary_of
from tests.generate.chat_rules import assert_chat_accepts
from tests.generate.events import counting_stamps
from tests.hostile_schemas import object_of

from antiphon import sse
from antiphon.dialects.chat import EventsToHub, request_from_hub, response_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.schema_budget import MAX_NODES
from antiphon.errors import InvalidValue
from antiphon.protocol.events import ArgumentsDelta, CustomInputDelta, TerminalEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import JsonObjectFormat, Request, TextFormat, TextParam
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    UnknownToolChoice,
    WebSearchTool,
)

Json = dict[str, Any]
BY_SCHEMA = ChatWire(forced_tools="schema", free_tools=False)
CITY: Json = {"type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}, "$defs": {"name": {"type": "string"}}}
TOOLS = [
    FunctionToolParam(name="get_weather", description="The weather", parameters=CITY),
    FunctionToolParam(name="get_time"),
    CustomTool(name="say", description="Says it"),
    NamespaceTool(name="files", tools=[FunctionToolParam(name="read", parameters=CITY)]),
]
WEATHER = SpecificFunction(name="get_weather")
OF_UNKNOWN_KIND = UnknownToolChoice(kind="mcp", raw=Raw(b'{"type":"mcp"}'))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=6)
    | st.sampled_from(['"', "\\", "}", '"}', "\\\\", "{["]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3)


def request(choice: Any = WEATHER, **fields: Any) -> Request:
    return Request(**{"model": "m", "input": "hi", "tools": TOOLS, "tool_choice": choice, **fields})


def sent(asked: Request, wire: ChatWire = BY_SCHEMA) -> tuple[Json, list[str]]:
    body, losses = request_from_hub(asked, wire)
    return assert_chat_accepts(body), [loss.path for loss in losses]


def schema_of(asked: Request, wire: ChatWire = BY_SCHEMA) -> Json:
    body, _ = sent(asked, wire)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    schema: Json = body["response_format"]["json_schema"]["schema"]
    return schema


class Answer:
    """The response to a text in these pieces, possibly after another delta, with this finish reason."""

    def __init__(self, *pieces: str, choice: Any = WEATHER, finish: str | None = "stop", **delta: Any) -> None:
        self.request = request(choice)
        reader = EventsToHub(
            self.request, make_initial_response(self.request, id="resp_1", created_at=1), counting_stamps(), BY_SCHEMA
        )
        chunks = [*([delta] if delta else []), *({"content": piece} for piece in pieces)]
        frames = [sse.Frame("", json.dumps(chunk(**members)).encode()) for members in chunks]
        if finish:
            frames += [sse.Frame("", json.dumps(chunk(finish=finish)).encode()), sse.Frame("", sse.DONE)]
        self.events = [event for frame in frames for event in reader.feed(frame)] + reader.finish()
        assert find_violations(self.events) == []
        assert [event for event in self.events if isinstance(event, TerminalEvent)] == self.events[-1:]
        self.response = fold_events(self.events)
        self.summary = [line.partition(" = ")[2] or line for line in summary_of(self.response)]
        self.losses = [loss.path for loss in reader.losses]

    @property
    def deltas(self) -> list[str]:
        return [event.delta for event in self.events if isinstance(event, ArgumentsDelta | CustomInputDelta)]


# The request


@pytest.mark.parametrize("choice", [WEATHER, AllowedToolsParam(mode="required", tools=[OF_UNKNOWN_KIND, WEATHER])])
def test_one_forced_tool_is_requested_by_the_schema_of_its_arguments(choice: Any) -> None:
    body, losses = sent(request(choice, instructions="Be kind.", parallel_tool_calls=True))
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "get_weather", "schema": CITY}}
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    system = body["messages"][0]
    assert system["role"] == "system"
    assert system["content"].startswith("Be kind.\n\n")
    assert system["content"].endswith("\n- get_weather: The weather")
    assert losses == ["tools"]  # the other tools


def test_several_forced_tools_are_requested_by_name_and_arguments() -> None:
    """Each keeps its own references; output that matches the schema is a call of one of them."""
    schema = schema_of(request("required"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert [option["properties"]["name"]["const"] for option in schema["anyOf"]] == [
        "get_weather",
        "get_time",
        "say",
        "files__read",
    ]
    assert validator.is_valid({"name": "get_weather", "arguments": {"city": "Rome"}})
    assert validator.is_valid({"name": "say", "arguments": {"input": "hi"}})
    assert not validator.is_valid({"name": "files__read", "arguments": {"city": 1}})
    assert not validator.is_valid({"name": "say", "arguments": {"city": "Rome"}})
    assert not validator.is_valid({"name": "sing", "arguments": {}})


def test_only_allowed_tools_are_in_the_schema() -> None:
    allowed = AllowedToolsParam(
        mode="required", tools=[SpecificFunction(name="read", namespace="files"), SpecificCustom(name="say")]
    )
    schema = schema_of(request(allowed))
    assert [option["properties"]["name"]["const"] for option in schema["anyOf"]] == ["say", "files__read"]


def test_references_are_moved_but_not_similar_values() -> None:
    parameters: Json = {
        "properties": {"again": {"$ref": "#"}, "far": {"$ref": "other.json"}, "fixed": {"const": {"$ref": "#/x"}}},
        "required": ["again"],
    }
    tools = [FunctionToolParam(name="f", parameters=parameters), FunctionToolParam(name="g")]
    assert schema_of(request("required", tools=tools))["$defs"]["f"] == {
        "type": "object",
        "properties": {
            "again": {"$ref": "#/$defs/f"},
            "far": {"$ref": "other.json"},
            "fixed": {"const": {"$ref": "#/x"}},
        },
        "required": ["again"],
    }


@pytest.mark.parametrize("parameters", [UNSET, None, {}, {"type": ["object", "null"]}])
def test_forced_arguments_are_always_an_object(parameters: Any) -> None:
    tools = [FunctionToolParam(name="f", parameters=parameters)]
    assert schema_of(request("required", tools=tools))["type"] == "object"


def test_forced_custom_tool_is_requested_as_one_string() -> None:
    native = ChatWire(forced_tools="schema", custom_tools="native")
    assert schema_of(request(SpecificCustom(name="say")), native)["required"] == ["input"]


def test_forced_tool_overrides_the_text_format() -> None:
    body, losses = sent(request(WEATHER, text=TextParam(format=JsonObjectFormat())))
    assert body["response_format"]["json_schema"]["name"] == "get_weather"
    assert losses == ["tools", "text.format"]
    assert sent(request(WEATHER, text=TextParam(format=TextFormat())))[1] == ["tools"]


def test_unknown_members_of_the_choice_are_losses() -> None:
    choice = SpecificFunction(name="get_weather", extra={"why": Raw(b"1")})
    assert sent(request(choice))[1] == ["tools", "tool_choice.why"]


@pytest.mark.parametrize("choice", [UNSET, None, "auto", "none", AllowedToolsParam(tools=[WEATHER], mode="auto")])
def test_unforced_tools_are_omitted_if_the_model_cannot_choose(choice: Any) -> None:
    body, losses = sent(request(choice))
    assert not {"tools", "tool_choice", "response_format"} & set(body)
    assert losses == ["tools"]


def test_additional_tools_are_forced_and_omitted_like_others() -> None:
    item = AdditionalTools(role="developer", tools=[FunctionToolParam(name="late")])
    fields: Json = {"tools": UNSET, "input": [MessageParam(role="user", content="hi"), item]}
    body, losses = sent(request("required", **fields))
    assert body["response_format"]["json_schema"]["name"] == "late"
    assert losses == []
    assert sent(request("auto", **fields))[1] == ["input[1].tools"]


def test_unforced_tools_are_offered_if_the_model_can_choose() -> None:
    body, losses = sent(request("auto"), ChatWire(forced_tools="schema"))
    assert len(body["tools"]) == 4
    assert body["tool_choice"] == "auto"
    assert losses == []


@pytest.mark.parametrize(
    ("choice", "free", "lost"),
    [
        (SpecificFunction(name="nobody"), True, ["tool_choice"]),
        (
            AllowedToolsParam(mode="required", tools=[OF_UNKNOWN_KIND, SpecificFunction(name="nobody")]),
            True,
            ["tool_choice"],
        ),
        (SpecificFunction(name="nobody"), False, ["tools", "tool_choice"]),
    ],
)
def test_tool_that_is_not_offered_cannot_be_forced(choice: Any, free: bool, lost: list[str]) -> None:
    body, losses = sent(request(choice), ChatWire(forced_tools="schema", free_tools=free))
    assert not {"tool_choice", "response_format"} & set(body)
    assert losses == lost


def test_forced_tools_of_the_deepest_allowed_nesting_are_moved() -> None:
    deep: Json = {}
    for _ in range(MAX_NESTING // 2):
        deep = {"properties": {"a": deep}}
    tools = [FunctionToolParam(name="f", parameters=deep), FunctionToolParam(name="g")]
    body, _ = request_from_hub(request("required", tools=tools), BY_SCHEMA)
    assert body.count(b'"properties":{"a":') == MAX_NESTING // 2


# The answer


def test_text_of_one_forced_tool_is_streamed_as_arguments() -> None:
    answer = Answer("", "\n ", ' {"ci', 'ty": "Ro', 'me"', "}", "\n")
    assert answer.deltas == ['{"ci', 'ty": "Ro', 'me"', "}"]
    assert answer.summary == ['get_weather({"city": "Rome"})', "completed"]
    assert answer.losses == []


def test_text_of_several_forced_tools_is_the_call_of_one() -> None:
    answer = Answer(
        '{"na', 'me": "files__read", "argum', 'ents": ', '{"city":', ' "}{"}', "\n", "} ", choice="required"
    )
    assert answer.summary == ['files.read({"city": "}{"})', "completed"]
    assert answer.deltas == ['{"city":', ' "}{"}']
    assert answer.losses == []


def test_text_of_a_forced_custom_tool_is_its_input() -> None:
    answer = Answer('{"input"', ': "he', 'llo"}', choice=SpecificCustom(name="say"))
    assert answer.summary == ["say[hello]", "completed"]


def test_reasoning_before_a_forced_call_is_reasoning() -> None:
    assert Answer("{}", reasoning_content="hm").summary == ["ReasoningText: hm", "get_weather({})", "completed"]


@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]), st.data())
@settings(max_examples=30)
def test_forced_arguments_are_unchanged_for_any_split(
    arguments: Json, one: bool, indent: int | None, data: st.DataObject
) -> None:
    """Laws (a), (b), (c): the same call for every split, and from a plain answer."""
    choice: Any = WEATHER if one else "required"
    written = json.dumps(arguments, indent=indent, ensure_ascii=data.draw(st.booleans()))
    text = written if one else json.dumps({"name": "get_weather", "arguments": 0}).replace("0", written)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    answer = Answer(*(text[at:to] for at, to in zip([0, *cuts], [*cuts, len(text)], strict=True)), choice=choice)
    assert answer.summary == [f"get_weather({written})", "completed"]
    assert "".join(answer.deltas) == written
    assert answer.losses == []
    body = json.dumps(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    )
    initial_response = make_initial_response(answer.request, id="resp_1", created_at=1)
    whole, _ = response_to_hub(body.encode(), answer.request, initial_response, counting_stamps(), BY_SCHEMA)
    assert whole == answer.response


@given(OBJECTS, st.sampled_from([None, "length"]), st.booleans(), st.data())
@settings(max_examples=30)
def test_truncated_forced_call_ends_once_as_incomplete(
    arguments: Json, finish: str | None, one: bool, data: st.DataObject
) -> None:
    """Law (e): `Answer` has checked the events; the delivered text is a prefix of the arguments."""
    written = json.dumps(arguments)
    text = written if one else f'{{"name": "get_weather", "arguments": {written}}}'
    cut = data.draw(st.integers(0, len(text)))
    answer = Answer(text[:cut], choice=WEATHER if one else "required", finish=finish)
    assert answer.summary[-1] == ("incomplete: max_output_tokens" if finish else "failed: upstream_disconnected")
    assert len(answer.summary) <= 2
    assert written.startswith("".join(answer.deltas))


def test_truncated_name_gives_no_call_and_a_loss() -> None:
    answer = Answer('{"name": "get_wea', choice="required", finish="length")
    assert answer.summary == ["incomplete: max_output_tokens"]
    assert answer.losses == ["message.content"]


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (WEATHER, "I would rather not."),
        ("required", '  "no"'),
        ("required", '{"name": "sing", "arguments": {}}'),
        ("required", '{"arguments": {}, "name": "say"}'),
        ("required", '{"name": "get_weather", "arguments": 5}'),
        ("required", "{" + " " * 600 + "}"),
    ],
)
def test_text_that_violates_the_schema_is_a_message(choice: Any, text: str) -> None:
    answer = Answer(*text, choice=choice)
    assert answer.summary == [f"OutputText: {text}", "completed"]
    assert answer.losses == ["tool_choice"]


def test_text_after_the_forced_call_is_a_loss() -> None:
    answer = Answer('{"city": "Rome"} and', " more")
    assert answer.summary == ['get_weather({"city": "Rome"})', "completed"]
    assert answer.losses == ["message.content"]


def test_blank_text_is_no_call() -> None:
    assert Answer(" ", "\n").summary == ["completed"]


def test_log_probabilities_of_a_forced_call_are_a_loss() -> None:
    logprobs = {"content": [{"token": "{", "logprob": -1.0, "bytes": [123], "top_logprobs": []}]}
    body = {"choices": [{"index": 0, "message": {"content": "{}"}, "logprobs": logprobs, "finish_reason": "stop"}]}
    asked = request(WEATHER)
    initial_response = make_initial_response(asked, id="resp_1", created_at=1)
    response, losses = response_to_hub(json.dumps(body).encode(), asked, initial_response, counting_stamps(), BY_SCHEMA)
    assert summary_of(response)[0].endswith("get_weather({})")
    assert [loss.path for loss in losses] == ["logprobs"]


def test_surrogate_halves_in_forced_arguments_are_joined() -> None:
    """Some servers split an escape pair."""
    asked = request(WEATHER)
    reader = EventsToHub(asked, make_initial_response(asked, id="resp_1", created_at=1), counting_stamps(), BY_SCHEMA)
    pieces = [b'{\\"city\\":\\"\\ud83d', b'\\ude00\\"}']
    frames = [sse.Frame("", b'{"choices":[{"index":0,"delta":{"content":"' + piece + b'"}}]}') for piece in pieces]
    frames.append(sse.Frame("", json.dumps(chunk(finish="stop")).encode()))
    events = [event for frame in frames for event in reader.feed(frame)] + reader.finish()
    assert find_violations(events) == []
    assert summary_of(fold_events(events))[0].endswith('get_weather({"city":"😀"})')


# Limits


def with_references(members: int) -> Json:
    """A schema that has to be rewritten when its root moves."""
    return {
        "type": "object",
        "$defs": CITY["$defs"],
        "properties": {f"m{at}": {"$ref": "#/$defs/name"} for at in range(members)},
    }


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (with_references(100_000), "tools[1].parameters"),
        ({**CITY, "anyOf": [1] * 100_000}, "tools[1].parameters"),
        ({**CITY, **{f"x{at}": 1 for at in range(100_000)}}, "tools[1].parameters"),
    ],
    ids=["members", "numbers", "keywords"],
)
def test_moved_schema_has_a_limit(schema: Json, path: str) -> None:
    """Faults: refused, and the work ends at the limit."""
    asked = request("required", tools=[TOOLS[0], FunctionToolParam(name="large", parameters=schema)])

    def send() -> None:
        with pytest.raises(InvalidValue, match="1,250 nodes") as refused:
            sent(asked)
        assert refused.value.param == path

    assert calls_of(send) < 50 * MAX_NODES


def test_moved_schemas_have_a_common_limit() -> None:
    """Faults: the path is that of the first tool that does not fit, in a namespace too."""
    tools = [FunctionToolParam(name=f"f{number}", parameters=with_references(900)) for number in range(20)]
    asked = request("required", tools=[TOOLS[0], WebSearchTool(), NamespaceTool(name="many", tools=[*tools])])
    with pytest.raises(InvalidValue, match="12,500 nodes") as refused:
        sent(asked)
    assert refused.value.param == "tools[2].tools[11].parameters"


def test_schema_without_references_is_not_walked() -> None:
    asked = request("required", tools=[TOOLS[0], FunctionToolParam(name="large", parameters=object_of(5000))])
    assert len(sent(asked)[0]["response_format"]["json_schema"]["schema"]["$defs"]["large"]["properties"]) == 5000
