"""Names of tools between any client and any server (REQ-8): a server gets names that it takes, one for each tool and the
same in tools, calls, results and choices; the client gets its own names back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.dialects.test_laws import frames_of
from tests.generate.events import counting_stamps

from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECT_NAMES, SERVER_DIALECTS
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.protocol.events import ItemDone, StreamEvent
from antiphon.protocol.items import (
    AdditionalTools,
    CustomToolCall,
    CustomToolCallParam,
    FunctionCall,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    ToolChoiceParam,
    ToolList,
    ToolParam,
    UnknownToolChoice,
)
from antiphon.protocol.writer import ResponseWriter

Json = dict[str, Any]
#: What servers refuse, as the providers write it.
ACCEPTED: dict[ServerDialectName, str] = {
    "chat": r"[a-zA-Z0-9_-]{1,64}",
    "responses": r"[a-zA-Z0-9_-]{1,64}",
    "messages": r"[a-zA-Z0-9_-]{1,128}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    "ollama": r"(?s:.+)",
}
CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.lists(
    st.sampled_from(["a", "a.b", "a:b", "a_b", "2a", "_2a", "-", "é", " ", "look at"])
    | st.integers(55, 140).map(lambda length: "n" * length)
    | st.integers(60, 130).map(lambda length: "mcp__" + "n" * length + ".x")
    | st.text(CHARACTERS, min_size=1, max_size=140),
    min_size=1,
    max_size=6,
    unique=True,
)
every_server = pytest.mark.parametrize("server", SERVER_DIALECT_NAMES)
every_client = pytest.mark.parametrize("client", SERVER_DIALECT_NAMES)


def request_of(names: list[str], choice: ToolChoiceParam = "auto") -> Request:
    """A request with functions of these names, one call of each, and its result."""
    items: list[ItemParam] = [MessageParam(role="user", content="hi")]
    items += [FunctionCallParam(call_id=f"c{n}", name=name, arguments="{}") for n, name in enumerate(names)]
    items += [FunctionCallOutputParam(call_id=f"c{n}", output="ok") for n, _ in enumerate(names)]
    tools: ToolList[ToolParam] = ToolList(FunctionToolParam(name=name, parameters={"type": "object"}) for name in names)
    return Request(model="m", input=items, tools=tools, tool_choice=choice)


def send(server: ServerDialectName, request: Request) -> Json:
    body, _ = SERVER_DIALECTS[server].request_from_hub(request, SERVER_DIALECTS[server].wire_type())
    decoded: Json = json.loads(body)
    return decoded


def offered_names(server: ServerDialectName, body: Json) -> list[str]:
    match server:
        case "chat" | "ollama":
            return [tool["function"]["name"] for tool in body["tools"]]
        case "gemini":
            return [declaration["name"] for declaration in body["tools"][0]["functionDeclarations"]]
        case _:
            return [tool["name"] for tool in body["tools"]]


def named_in_history(server: ServerDialectName, body: Json) -> list[str]:
    """The names of calls, and of results if they have names, in order."""
    match server:
        case "chat":
            return [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
        case "ollama":
            calls = [call["function"]["name"] for call in body["messages"][1]["tool_calls"]]
            return calls + [message["tool_name"] for message in body["messages"][2:]]
        case "messages":
            return [block["name"] for block in body["messages"][1]["content"]]
        case "gemini":
            results = [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]]
            return [part["functionCall"]["name"] for part in body["contents"][1]["parts"]] + results
        case "responses":
            return [item["name"] for item in body["input"] if item["type"] == "function_call"]


def chosen_name(server: ServerDialectName, body: Json) -> str:
    match server:
        case "chat":
            name = body["tool_choice"]["function"]["name"]
        case "gemini":
            (name,) = body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"]
        case _:
            name = body["tool_choice"]["name"]
    assert isinstance(name, str)
    return name


def calls_of(server: ServerDialectName, names: list[str]) -> bytes:
    """A stream of the server that calls tools by these names."""
    request, events = Request(model="m", input="hi"), list[StreamEvent]()
    writer = ResponseWriter(make_initial_response(request, id="resp_1", created_at=1), events.append, counting_stamps())
    writer.create()
    for key, name in enumerate(names):
        writer.open_call(key, name=name, call_id=f"call_{key}")
        writer.add_arguments(key, "{}")
        writer.close_item(key)
    writer.complete()
    written = CLIENT_DIALECTS[server].events_from_hub(request)
    return b"".join(map(written.feed, events)) + written.finish()


def read(server: ServerDialectName, request: Request, data: bytes, wire: Any = None) -> list[StreamEvent]:
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    wire = wire or SERVER_DIALECTS[server].wire_type()
    reader = SERVER_DIALECTS[server].events_to_hub(request, initial_response, counting_stamps(), wire)
    events = [event for frame in frames_of(server, data) for event in reader.feed(frame)] + reader.finish()
    assert list(reader.losses) == []
    return events


def called_names(events: list[StreamEvent]) -> list[str]:
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return [item.name for item in items if isinstance(item, FunctionCall | CustomToolCall)]


def names_of_calls(value: Any) -> Iterator[str]:
    """The names of all objects in the JSON that are calls."""
    if isinstance(value, dict):
        if "name" in value and not value.keys().isdisjoint({"arguments", "args", "input"}):
            yield value["name"]
        yield from names_of_calls(list(value.values()))
    elif isinstance(value, list):
        for member in value:
            yield from names_of_calls(member)


@pytest.mark.without_coverage
@every_server
@given(names=NAMES)
def test_server_gets_one_valid_name_for_each_tool(server: ServerDialectName, names: list[str]) -> None:
    body = send(server, request_of(names))
    sent = offered_names(server, body)
    assert len(set(sent)) == len(names)
    assert [name for name in sent if not re.fullmatch(ACCEPTED[server], name)] == []
    history = named_in_history(server, body)
    assert history == (sent if len(history) == len(sent) else sent + sent)


@every_server
@given(names=NAMES)
def test_name_that_the_server_takes_is_not_changed(server: ServerDialectName, names: list[str]) -> None:
    sent = dict(zip(names, offered_names(server, send(server, request_of(names))), strict=True))
    assert [name for name in names if re.fullmatch(ACCEPTED[server], name) and sent[name] != name] == []


@pytest.mark.parametrize("server", [name for name in SERVER_DIALECT_NAMES if name != "ollama"])
@given(names=NAMES)
def test_choice_names_the_offered_tool(server: ServerDialectName, names: list[str]) -> None:
    """Ollama has no tool choice."""
    body = send(server, request_of(names, SpecificFunction(name=names[-1])))
    assert chosen_name(server, body) == offered_names(server, body)[-1]


@every_server
@given(names=NAMES)
def test_name_is_the_same_in_the_next_turn_and_in_any_order(server: ServerDialectName, names: list[str]) -> None:
    first = dict(zip(names, offered_names(server, send(server, request_of(names))), strict=True))
    later = [*reversed(names), "another"] if "another" not in names else list(reversed(names))
    second = dict(zip(later, offered_names(server, send(server, request_of(later))), strict=True))
    assert {name: second[name] for name in names} == first


@pytest.mark.without_coverage
@every_client
@every_server
@given(names=NAMES)
def test_client_gets_its_own_names_back(client: ServerDialectName, server: ServerDialectName, names: list[str]) -> None:
    request = request_of(names)
    events = read(server, request, calls_of(server, offered_names(server, send(server, request))))
    assert called_names(events) == names
    to_client = CLIENT_DIALECTS[client].events_from_hub(request)
    data = b"".join(map(to_client.feed, events)) + to_client.finish()
    frames = [frame.data for frame in frames_of(client, data) if frame.data != b"[DONE]"]
    delivered = [name for frame in frames for name in names_of_calls(msgspec.json.decode(frame))]
    assert list(dict.fromkeys(delivered)) == names


def test_two_long_names_with_a_common_beginning_stay_two() -> None:
    names = ["mcp__" + "long" * 20 + end for end in ("_read", "_write")]
    assert offered_names("messages", send("messages", request_of(names))) == names
    sent = offered_names("chat", send("chat", request_of(names)))
    assert [len(name) for name in sent] == [64, 64]
    assert sent[0] != sent[1]


@given(name=st.sampled_from(["a.b", "n" * 100, "look at"]))
def test_responses_server_gets_valid_names_in_namespaces_custom_tools_and_sets(name: str) -> None:
    """Kinds and namespaces stay as they are for servers that support them."""
    tools: list[ToolParam] = [
        NamespaceTool(name="files", tools=[FunctionToolParam(name=name), CustomTool(name="edit")]),
        CustomTool(name=name),
    ]
    hosted = UnknownToolChoice(kind="mcp", raw=Raw(b'{"type":"mcp","name":"docs"}'))
    choice = AllowedToolsParam(
        tools=[SpecificFunction(name=name, namespace="files"), SpecificCustom(name=name), hosted]
    )
    items: list[ItemParam] = [
        MessageParam(role="user", content="hi"),
        AdditionalTools(tools=[FunctionToolParam(name="more.tools")]),
        CustomToolCallParam(call_id="c1", name=name, input="x"),
        FunctionCallParam(call_id="c2", name="gone.tool", arguments="{}", namespace="gone"),
    ]
    request = Request(model="m", input=items, tools=tools, tool_choice=choice)
    body = send("responses", request)
    wire_name = body["tools"][1]["name"]
    assert re.fullmatch(ACCEPTED["responses"], wire_name)
    assert [tool["type"] for tool in body["tools"]] == ["namespace", "custom"]
    assert [member["name"] for member in body["tools"][0]["tools"]] == [wire_name, "edit"]
    assert [tool["name"] for tool in body["tool_choice"]["tools"]] == [wire_name, wire_name, "docs"]
    assert re.fullmatch(ACCEPTED["responses"], body["input"][1]["tools"][0]["name"])
    assert body["input"][2]["name"] == wire_name
    assert re.fullmatch(ACCEPTED["responses"], body["input"][3]["name"])
    assert body["input"][3]["namespace"] == "gone"


def read_calls(request: Request, calls: list[Json], wire: ResponsesWire) -> Response:
    output = [{"id": f"fc_{n}", "call_id": f"c{n}", "status": "completed"} | call for n, call in enumerate(calls)]
    tools = send("responses", request)["tools"]
    answer = {"id": "resp_x", "object": "response", "status": "completed", "output": output, "tools": tools}
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    response, losses = SERVER_DIALECTS["responses"].response_to_hub(
        json.dumps(answer).encode(), request, initial_response, counting_stamps(), wire
    )
    assert list(losses) == []
    return response


def test_responses_server_calls_tools_of_namespaces_by_their_own_names() -> None:
    tools: list[ToolParam] = [
        NamespaceTool(name="files", tools=[FunctionToolParam(name="a.b")]),
        CustomTool(name="c.d"),
    ]
    request = Request(model="m", input="hi", tools=tools)
    sent = send("responses", request)["tools"]
    calls = [
        {"type": "function_call", "namespace": "files", "name": sent[0]["tools"][0]["name"], "arguments": ""},
        {"type": "custom_tool_call", "name": sent[1]["name"], "input": ""},
        {"type": "function_call", "namespace": "other", "name": "e", "arguments": ""},
    ]
    response = read_calls(request, calls, ResponsesWire())
    called = [(item.name, item.namespace) for item in response.output if isinstance(item, FunctionCall)]
    assert called == [("a.b", "files"), ("e", "other")]
    assert [item.name for item in response.output if isinstance(item, CustomToolCall)] == ["c.d"]
    assert json.loads(msgspec.json.encode(response.tools))[1]["name"] == "c.d"  # HTTP-2: the client's own tools


def test_custom_call_of_a_server_that_got_functions_keeps_its_name() -> None:
    request = Request(model="m", input="hi", tools=[FunctionToolParam(name="a")])
    call = {"type": "custom_tool_call", "name": "patch", "input": ""}
    response = read_calls(request, [call], ResponsesWire(extension_tools="flatten"))
    assert [item.name for item in response.output if isinstance(item, CustomToolCall)] == ["patch"]
