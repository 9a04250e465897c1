"""Hub requests for servers of this API, incomplete ones included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.responses import ResponsesWire, request_from_hub, request_to_hub
from antiphon.errors import UnsupportedParameter
from antiphon.gateway.ids import group_item_id, id_of, new_id
from antiphon.protocol import codec
from antiphon.protocol.content import InputText, OutputTextParam, ToolResult, ToolUse, UnknownContent
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCall,
    FunctionCallOutputParam,
    FunctionCallParam,
    ImageGenerationCall,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.losses import Loss
from antiphon.protocol.request import ENCRYPTED_IF_ANY, Request
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import ToolList, UnknownTool, UnknownToolChoice

STATEFUL = ResponsesWire(stateful=True)
FIELDS = [
    "metadata",
    "service_tier",
    "text.verbosity",
    "reasoning.effort",
    "include",
    "user",
    "top_k",
    "stream_options",
]
WIRES = st.builds(
    ResponsesWire,
    assistant_content=st.sampled_from(["output_text", "input_text"]),
    status_fields=st.sampled_from(["keep", "drop"]),
    item_ids=st.sampled_from(["keep", "own", "drop"]),
    phase=st.sampled_from(["keep", "drop"]),
    reasoning=st.sampled_from(["keep", "encrypted_only"]),
    unknown_items=st.sampled_from(["keep", "drop"]),
    extension_tools=st.sampled_from(["keep", "flatten"]),
    stateful=st.booleans(),
    lacks=st.lists(st.sampled_from(FIELDS), unique=True, max_size=4),
)


def sent(request: Request, wire: ResponsesWire = ResponsesWire()) -> tuple[dict[str, Any], list[Loss]]:  # noqa: B008
    body, losses = request_from_hub(request, wire)
    return json.loads(body), list(losses)


def sent_items(*items: ItemParam, wire: ResponsesWire = ResponsesWire()) -> tuple[list[dict[str, Any]], list[Loss]]:  # noqa: B008
    body, losses = sent(Request(model="m", input=list(items)), wire)
    return body["input"], losses


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a document, with its path."""
    match value:
        case str():
            yield path, value
        case dict():
            for name, member in value.items():
                yield from texts(member, f"{path}.{name}" if path else name)
        case list():
            for at, member in enumerate(value):
                yield from texts(member, f"{path}[{at}]")


@given(requests(orderly=True))
def test_orderly_request_is_sent_unchanged_to_a_full_server(request: Request) -> None:
    """Hub → this dialect → hub is the identity."""
    body, losses = request_from_hub(request, STATEFUL)
    assert codec.encode(request_to_hub(body)[0]) == codec.encode(request)
    assert list(losses) == []


@given(requests(), WIRES)
@settings(max_examples=40)
def test_request_from_hub_is_idempotent_for_one_server(request: Request, wire: ResponsesWire) -> None:
    """Hub → this dialect → hub → this dialect: the second time nothing is left to change or to lose."""
    body, _ = request_from_hub(request, wire)
    again, losses = request_from_hub(request_to_hub(body)[0], wire)
    assert json.loads(again) == json.loads(body)
    assert list(losses) == []


@given(requests(), WIRES)
@settings(max_examples=40)
def test_every_text_is_sent_or_named_as_a_loss(request: Request, wire: ResponsesWire) -> None:
    """F-4, REQ-6: nothing is lost in silence."""
    body, losses = request_from_hub(request, wire)
    arrived = set(marks_of(json.loads(body) and body.decode()))
    paths = [loss.path for loss in losses]
    for path, text in texts(json.loads(codec.encode(request))):
        if not path.startswith("chat:"):
            for mark in marks_of(text):
                assert mark in arrived or any(path.startswith(lost) for lost in paths), (path, text, paths)


@given(requests(), WIRES)
@settings(max_examples=40)
def test_content_types_follow_the_role(request: Request, wire: ResponsesWire) -> None:
    """C-2: for any client body."""
    body, _ = sent(request, wire)
    messages = (
        [item for item in body["input"] if item["type"] == "message"] if isinstance(body.get("input"), list) else []
    )
    for message in messages:
        if isinstance(message["content"], list):
            types = {part["type"] for part in message["content"]} - {"tool_use", "tool_result"}
            types = {kind for kind in types if ":" not in kind}
            if message["role"] == "assistant":
                assert types <= (
                    {"input_text"} if wire.assistant_content == "input_text" else {"output_text", "refusal"}
                )
            else:
                assert types <= {"input_text", "input_image", "input_file", "input_video", "input_audio"}


@given(requests(), WIRES)
@settings(max_examples=40)
def test_unsupported_fields_are_never_sent(request: Request, wire: ResponsesWire) -> None:
    """REQ-6, D-1"""
    body, losses = sent(request, wire)
    items = body["input"] if isinstance(body.get("input"), list) else []
    assert wire.unknown_items == "keep" or all(item["type"] != "acme:thing" for item in items)
    assert wire.status_fields == "keep" or not any(
        "status" in item for item in items if item["type"] in ("message", "function_call")
    )
    assert wire.reasoning == "keep" or all(
        item.get("encrypted_content") for item in items if item["type"] == "reasoning"
    )
    for name in wire.lacks:
        outer, _, inner = name.partition(".")
        assert (inner or outer) not in (body.get(outer, {}) if inner else body)
        given_up = {loss.path for loss in losses}
        assert name in given_up or not _has(request, name)


def _has(request: Request, name: str) -> bool:
    value: Any = json.loads(codec.encode(request))
    for member in name.split("."):
        value = value.get(member) if isinstance(value, dict) else None
    return value is not None


# State of servers


def test_state_fields_are_sent_only_to_stateful_servers() -> None:
    request = Request(
        model="m",
        input="hi",
        store=True,
        previous_response_id="resp_0",
        conversation="conv_1",
        background=True,
        generate=False,
    )
    body, losses = sent(request)
    assert body == {"model": "m", "input": "hi", "store": False}
    assert losses == []
    assert sent(request, STATEFUL)[0] == {
        "model": "m",
        "input": "hi",
        "store": True,
        "previous_response_id": "resp_0",
        "conversation": "conv_1",
        "background": True,
        "generate": False,
    }


def test_supported_settings_are_sent() -> None:
    """REQ-5"""
    expected = {
        "metadata": {"a": "1"},
        "service_tier": "flex",
        "safety_identifier": "who",
        "prompt_cache_key": "key",
        "text": {"verbosity": "low"},
    }
    request, _ = request_to_hub(json.dumps({"model": "m", "input": "hi", **expected}).encode())
    body, losses = sent(request)
    assert {name: body[name] for name in expected} == expected
    assert losses == []


def test_unknown_fields_pass_and_those_of_other_dialects_do_not() -> None:
    """REQ-7, REQ-6"""
    extra = {"top_k": Raw(b"5"), "chat:seed": Raw(b"7"), "chat:stream_options": Raw(b"{}")}
    body, losses = sent(Request(model="m", input="hi", extra=extra))
    assert body == {"model": "m", "input": "hi", "store": False, "top_k": 5}
    assert [(loss.path, loss.what) for loss in losses] == [("seed", "the field 'seed'")]


@pytest.mark.parametrize("format", ["json_object", "json_schema"])
def test_json_output_is_refused_for_servers_without_json(format: str) -> None:
    """REQ-1: without it the answer would be of another kind; a text format can be dropped."""
    wire = ResponsesWire(lacks=["text.format"])
    asked = codec.decode_request(
        json.dumps({"model": "m", "input": "hi", "text": {"format": {"type": format}}}).encode()
    )
    with pytest.raises(UnsupportedParameter) as refused:
        request_from_hub(asked, wire)
    assert refused.value.param == "text.format"
    plain = codec.decode_request(b'{"model":"m","input":"hi","text":{"format":{"type":"text"}}}')
    assert "format" not in sent(plain, wire)[0]["text"]


def test_unsupported_field_is_a_loss_at_any_depth() -> None:
    """REQ-6"""
    request, _ = request_to_hub(
        b'{"model":"m","text":{"verbosity":"low","format":{"type":"text"}},"top_k":1,"user":null}'
    )
    wire = ResponsesWire(lacks=["text.verbosity", "top_k", "user", "metadata", "reasoning.effort"])
    body, losses = sent(request, wire)
    assert body == {"model": "m", "text": {"format": {"type": "text"}}, "store": False, "user": None}
    assert [loss.path for loss in losses] == ["text.verbosity", "top_k"]


# Messages


@pytest.mark.parametrize(
    ("wire", "content", "lost"),
    [
        (ResponsesWire(), [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}], []),
        (
            ResponsesWire(assistant_content="input_text"),
            [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
            ["input[0].content[1]"],
        ),
    ],
)
def test_assistant_content_follows_the_wire_option(wire: ResponsesWire, content: object, lost: list[str]) -> None:
    """D-1, C-2: a refusal becomes text with a loss where only text is allowed."""
    request, _ = request_to_hub(
        b'{"input":[{"role":"assistant","content":[{"type":"input_text","text":"a"},{"type":"refusal","refusal":"b"}]}]}'
    )
    body, losses = sent(request, wire)
    assert body["input"][0]["content"] == content
    assert [loss.path for loss in losses] == lost


def test_assistant_string_becomes_a_part_only_if_configured() -> None:
    """D-1"""
    message = MessageParam(role="assistant", content="a")
    assert sent_items(message)[0][0]["content"] == "a"
    assert sent_items(message, wire=ResponsesWire(assistant_content="input_text"))[0][0]["content"] == [
        {"type": "input_text", "text": "a"}
    ]


@pytest.mark.parametrize("part", ["output_text", "text", "summary_text", "reasoning_text"])
def test_user_text_is_always_input_text(part: str) -> None:
    """C-2"""
    request, _ = request_to_hub(
        json.dumps({"input": [{"role": "user", "content": [{"type": part, "text": "a"}]}]}).encode()
    )
    body, _ = sent(request)
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "a"}]


def test_citations_are_a_loss_if_plain_text_is_required() -> None:
    """F-4"""
    cited: Any = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "u", "title": "t"}
    request, _ = request_to_hub(
        json.dumps(
            {
                "input": [
                    {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": [cited]}]}
                ]
            }
        ).encode()
    )
    body, losses = sent(request)
    assert body["input"][0]["content"][0]["annotations"] == [cited]
    assert losses == []
    body, losses = sent(request, ResponsesWire(assistant_content="input_text"))
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "a"}]
    assert [loss.path for loss in losses] == ["input[0].content[0]"]


def test_images_in_assistant_turns_are_a_loss() -> None:
    """C-2"""
    request, _ = request_to_hub(
        b'{"input":[{"role":"assistant","content":[{"type":"input_image","image_url":"https://i"}]}]}'
    )
    for wire in (ResponsesWire(), ResponsesWire(assistant_content="input_text")):
        _, losses = sent(request, wire)
        assert [loss.path for loss in losses] == ["input[0].content[0]"]


def test_tool_blocks_inside_messages_are_passed_through() -> None:
    """E-2: for servers that require them there."""
    use = ToolUse(id="call_1", name="look", input={"q": 1})
    result = ToolResult(tool_use_id="call_1", content="ok", is_error=False)
    items, losses = sent_items(
        MessageParam(role="assistant", content=[OutputTextParam(text="a"), use]),
        MessageParam(role="user", content=[result]),
    )
    assert items[0]["content"][1] == {"type": "tool_use", "id": "call_1", "name": "look", "input": {"q": 1}}
    assert items[1]["content"] == [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok", "is_error": False}]
    assert losses == []


def test_phases_are_kept_or_a_loss() -> None:
    """ITEM-7"""
    message = MessageParam(role="assistant", content="a", phase="final_answer")
    assert sent_items(message)[0][0]["phase"] == "final_answer"
    items, losses = sent_items(message, wire=ResponsesWire(phase="drop"))
    assert "phase" not in items[0]
    assert [loss.path for loss in losses] == ["input[0].phase"]


# Reasoning and other items


@pytest.mark.parametrize(
    ("wire", "expected", "lost"),
    [
        ("keep", [["content", "id", "summary", "type"], ["content", "encrypted_content", "summary", "type"]], []),
        ("encrypted_only", [["encrypted_content", "summary", "type"]], ["input[0]", "input[1].content"]),
    ],
)
def test_reasoning_is_sent_by_the_wire_option(wire: Any, expected: list[list[str]], lost: list[str]) -> None:
    """RSN-1, RSN-3"""
    request, _ = request_to_hub(
        b'{"input":[{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"a"}]},'
        b'{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"b"}],"encrypted_content":"s"}]}'
    )
    body, losses = sent(request, ResponsesWire(reasoning=wire))
    assert [sorted(item) for item in body["input"]] == expected
    assert [loss.path for loss in losses] == lost


def test_ids_and_statuses_can_be_dropped() -> None:
    """Some servers refuse statuses in their input."""
    request, _ = request_to_hub(
        b'{"input":[{"role":"assistant","id":"msg_1","status":"completed","content":"a"},{"type":"item_reference","id":"msg_2"},'
        b'{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"n","arguments":"{}"},'
        b'{"type":"function_call_output","call_id":"c","output":"","status":"completed"},'
        b'{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"compaction_trigger"}]}'
    )
    body, losses = sent(request, ResponsesWire(status_fields="drop"))
    assert ["status" in item for item in body["input"]] == [False] * 6
    assert losses == []
    assert sent(request)[0]["input"] == json.loads(codec.encode(request))["input"]


def test_output_items_are_sent_back_unchanged() -> None:
    """ITEM-6, RSN-1: a server gets back its own items, ids, statuses and sealed reasoning included."""
    output = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "s"}],
            "encrypted_content": "x",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
        },
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i", "id": "ctc_1", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "o"},
        {"type": "acme:thing", "id": "th_1", "deep": {"a": [1]}},
    ]
    request, _ = request_to_hub(json.dumps({"model": "m", "input": output}).encode())
    body, losses = sent(request)
    assert body["input"] == output
    assert losses == []


def test_unknown_items_pass_or_are_a_loss() -> None:
    """ITEM-5"""
    request, _ = request_to_hub(b'{"input":[{"type":"acme:thing","x":1}]}')
    assert sent(request)[0]["input"] == [{"type": "acme:thing", "x": 1}]
    body, losses = sent(request, ResponsesWire(unknown_items="drop"))
    assert body["input"] == []
    assert [loss.what for loss in losses] == ["an item of type 'acme:thing'"]


def test_encrypted_only_reasoning_without_text_has_no_loss() -> None:
    sealed = ReasoningParam(summary=[], encrypted_content="s")
    assert sent_items(sealed, wire=ResponsesWire(reasoning="encrypted_only"))[1] == []


@pytest.mark.parametrize("dialect", ["chat", "gemini", "messages"])
def test_settings_of_other_dialects_are_losses(dialect: str) -> None:
    """REQ-6: a server of this API would refuse a field of that name."""
    body, losses = sent(Request(model="m", input="hi", extra={f"{dialect}:seed": Raw(b"7")}))
    assert body.keys() == {"model", "input", "store"}
    assert [loss.path for loss in losses] == ["seed"]


def test_result_object_of_a_tool_is_not_sent_beside_its_text() -> None:
    """F-4: only servers of its own dialect accept it, and its text has the same content."""
    extra = {"gemini:resultObject": Raw(b'{"result":"x"}')}
    items, losses = sent_items(
        FunctionCallOutputParam(call_id="c", output="x", extra=extra),
        FunctionCallOutputParam(call_id="d", output="y", extra={**extra, "acme": Raw(b"1")}),
    )
    assert items == [
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "function_call_output", "call_id": "d", "output": "y", "acme": 1},
    ]
    assert losses == []


# Types of another API.


@pytest.mark.parametrize("kind", ["gemini:googleSearch", "web_search_20250305", "mcp_toolset"])
def test_hosted_tools_of_another_api_are_losses_F4(kind: str) -> None:
    """REQ-6: a server refuses tools of unknown type. Other extensions pass unchanged (REQ-7)."""
    extension = UnknownTool(kind="acme:search", raw=Raw(b'{"type":"acme:search"}'))
    foreign = UnknownTool(kind=kind, raw=Raw(b'{"type":"%b","name":"search"}' % kind.encode()))
    body, losses = sent(Request(model="m", input="hi", tools=ToolList([extension, foreign])))
    assert body["tools"] == [{"type": "acme:search"}]
    assert losses == [
        Loss("tools[1]", f"a tool of type {kind.removeprefix('gemini:')!r}", "only servers of another API support it")
    ]
    body, _ = sent(Request(model="m", input="hi", tools=[foreign]))
    assert "tools" not in body


def test_choice_of_a_tool_of_another_api_is_a_loss() -> None:
    foreign = UnknownTool(kind="web_search_20250305", raw=Raw(b'{"type":"web_search_20250305","name":"search"}'))
    choice = UnknownToolChoice(kind="tool", raw=Raw(b'{"type":"tool","name":"search"}'))
    body, losses = sent(Request(model="m", input="hi", tools=[foreign], tool_choice=choice))
    assert "tool_choice" not in body
    assert [loss.path for loss in losses] == ["tools[0]", "tool_choice"]
    other_choice = UnknownToolChoice(kind="mcp", raw=Raw(b'{"type":"mcp","server_label":"x"}'))
    assert sent(Request(model="m", input="hi", tool_choice=other_choice))[0]["tool_choice"] == {
        "type": "mcp",
        "server_label": "x",
    }


@pytest.mark.parametrize("prefix", ["messages:", "gemini:"])
def test_items_and_parts_of_another_api_are_losses_F4(prefix: str) -> None:
    item = UnknownItem(kind=f"{prefix}code", raw=Raw(b'{"type":"%bcode"}' % prefix.encode()))
    part = UnknownContent(kind=f"{prefix}code", raw=Raw(b'{"type":"%bcode"}' % prefix.encode()))
    sent_input, losses = sent_items(
        item,
        MessageParam(role="user", content=[part, InputText(text="hi")]),
        MessageParam(role="assistant", content=[part, OutputTextParam(text="ho")]),
    )
    texts = [[each["text"] for each in message["content"]] for message in sent_input]
    assert texts == [["[code omitted]", "hi"], ["ho"]]
    assert [loss.path for loss in losses] == ["input[0]", "input[1].content[0]", "input[2].content[0]"]


SEALED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
SEALING = ResponsesWire(sealed_reasoning=True, no_reasoning_models=("plain-*",))


@pytest.mark.parametrize(
    ("model", "wire", "asked", "include", "lost"),
    [
        # RSN-2: a server without storage accepts its reasoning only encrypted.
        ("deep-1", SEALING, None, [SEALED], []),
        ("deep-1", SEALING, [LOGPROBS], [LOGPROBS, SEALED], []),
        ("deep-1", SEALING, [SEALED], [SEALED], []),
        ("deep-1", SEALING, [ENCRYPTED_IF_ANY], [SEALED], []),
        # A model without reasoning refuses the field, whoever added it; it is a loss only for clients that requested
        # it.
        ("plain-1", SEALING, None, None, []),
        ("plain-1", SEALING, [LOGPROBS], [LOGPROBS], []),
        ("plain-1", SEALING, [ENCRYPTED_IF_ANY], None, []),
        ("plain-1", SEALING, [LOGPROBS, SEALED], [LOGPROBS], ["include[1]"]),
        # Other servers get the client's own `include`.
        ("plain-1", ResponsesWire(), None, None, []),
        ("plain-1", ResponsesWire(), [SEALED], [SEALED], []),
        ("plain-1", ResponsesWire(), [LOGPROBS, ENCRYPTED_IF_ANY], [LOGPROBS, SEALED], []),
    ],
)
def test_encrypted_reasoning_is_requested_from_models_with_reasoning(
    model: str, wire: ResponsesWire, asked: list[str] | None, include: list[str] | None, lost: list[str]
) -> None:
    body, losses = sent(Request(model=model, input="Hi", include=asked or UNSET), wire)
    assert body.get("include") == include
    assert [loss.path for loss in losses] == lost


OWN_IDS = ResponsesWire(item_ids="own")
ISSUED = "67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b"


@pytest.mark.parametrize(
    ("item", "is_sent"),
    [
        (MessageParam(role="user", content="hi", id=f"msg_{ISSUED}"), True),
        (MessageParam(role="user", content="hi", id="mine"), False),
        (MessageParam(role="assistant", content="hi", id="msg_" + "a" * 61), False),
        (MessageParam(role="assistant", content="hi", id=new_id("msg")), False),
        (MessageParam(role="user", content="hi", id=group_item_id(new_id("items"), 3, "msg")), False),
        (FunctionCallParam(call_id="c", name="f", arguments="{}", id=f"fc_{ISSUED}"), True),
        (FunctionCallParam(call_id="c", name="f", arguments="{}", id=f"msg_{ISSUED}"), False),
        (FunctionCall(call_id="c", name="f", arguments="{}", id="toolu_1", status=ItemStatus.COMPLETED), False),
        (CustomToolCallParam(call_id="c", name="f", input="", id=f"ctc_{ISSUED}"), True),
        (FunctionCallOutputParam(call_id="c", output="", id=new_id("fco")), False),
        (FunctionCallOutputParam(call_id="c", output="", id=f"fc_{ISSUED}"), True),
        (FunctionCallOutputParam(call_id="c", output="", id="toolu_1"), False),
        (CustomToolCallOutputParam(call_id="c", output="", id=f"ctco_{ISSUED}"), True),
        (CustomToolCallOutputParam(call_id="c", output="", id=f"ctc_{ISSUED}"), False),
        (WebSearchCall(id=f"ws_{ISSUED}", status="completed"), True),
        (WebSearchCall(id="srvtoolu_1", status="completed"), False),
        (ReasoningParam(summary=[], encrypted_content="x", id=f"rs_{ISSUED}"), True),
        (ReasoningParam(summary=[], encrypted_content="x", id="thinking_0"), False),
        (ItemReference(id="mine"), True),
    ],
)
def test_server_gets_only_ids_of_items_that_it_can_have_issued(item: ItemParam, is_sent: bool) -> None:
    body, losses = request_from_hub(Request(model="m", input=[item]), OWN_IDS)
    sent = json.loads(body)["input"][0]
    assert sent.get("id") == (id_of(item) if is_sent else None)
    assert all("has no output" in loss.what for loss in losses)
    kept, _ = request_from_hub(Request(model="m", input=[item]))
    assert "id" in json.loads(kept)["input"][0]


@pytest.mark.parametrize(
    ("item", "is_sent"),
    [
        (MessageParam(role="assistant", content="hi", id=f"msg_{ISSUED}"), False),
        (ReasoningParam(summary=[], encrypted_content="x", id=f"rs_{ISSUED}"), False),
        (WebSearchCall(id=f"ws_{ISSUED}", status="completed"), False),
        (ImageGenerationCall(id=f"ig_{ISSUED}", status="completed"), True),
        (ImageGenerationCall(id=new_id("ig"), status="completed"), False),
        (ItemReference(id="mine"), True),
    ],
)
def test_server_gets_no_ids_that_another_server_may_have_issued(item: ItemParam, is_sent: bool) -> None:
    body, losses = request_from_hub(Request(model="m", input=[item]), ResponsesWire(item_ids="drop"))
    assert json.loads(body)["input"][0].get("id") == (id_of(item) if is_sent else None)
    assert not losses


def test_item_without_an_id_gets_none() -> None:
    body, _ = request_from_hub(Request(model="m", input=[MessageParam(role="user", content="hi")]), OWN_IDS)
    assert "id" not in json.loads(body)["input"][0]
