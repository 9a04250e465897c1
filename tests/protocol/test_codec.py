"""Bytes ⇄ types: invalid JSON is refused with a reason, valid JSON is encoded unchanged, and no other exception is
raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.generate.shapes import documents

from antiphon.errors import ApiError, ClientFault, InvalidJson, JsonTooDeep
from antiphon.protocol.base import EXTRA_NAME, RAW_MARK, UNKNOWN_TAG
from antiphon.protocol.codec import (
    LARGE_SETTING,
    _RawToolsRequest,
    _request_with_tools,
    decode_as,
    decode_client_request,
    decode_compact_request,
    decode_create_message,
    decode_event,
    decode_item,
    decode_item_param,
    decode_request,
    decode_response,
    decode_stored,
    decode_stored_request,
    encode,
    encode_pieces,
    restore_raw,
)
from antiphon.protocol.content import ToolResult
from antiphon.protocol.events import OutputTextDelta, ReasoningDelta, ReasoningDone, UnknownEvent
from antiphon.protocol.items import (
    AdditionalTools,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallParam,
    ItemParam,
    LocalShellCall,
    Message,
    MessageParam,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.tools import (
    CustomTool,
    FunctionToolParam,
    GrammarFormat,
    NamespaceTool,
    ToolList,
    ToolParam,
    ToolSearchTool,
    WebSearchTool,
)

READERS: Final = [
    decode_request,
    decode_compact_request,
    decode_create_message,
    decode_item_param,
    decode_item,
    decode_response,
    decode_event,
]


def refusal_of(body: bytes) -> ClientFault:
    with pytest.raises(ClientFault) as refused:
        decode_request(body)
    assert (refused.value.status, refused.value.type) == (400, "invalid_request")
    return refused.value


# Invalid JSON


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty: expected a JSON object"),
        (b" \r\n", "the body is empty: expected a JSON object"),
        (b"null", "the body: expected an object, got null"),
        (b" [] ", "the body: expected an object, got []"),
        (b'"input"', 'the body: expected an object, got "input"'),
        (b"5", "the body: expected an object, got 5"),
        (b"false" + b" " * 2000, "the body: expected an object, got false"),
        (b"{}{}", "the body is not valid JSON: trailing characters (byte 3)"),
        (b'{"input":"x"} x', "the body is not valid JSON: trailing characters (byte 15)"),
        (b'{"input"', "the body is not valid JSON: it is truncated after 8 bytes"),
        (b'{"a":1,}', "the body is not valid JSON: trailing comma in object (byte 7)"),
        (b'{"input":"\x00"}', "the body is not valid JSON: invalid character (byte 10)"),
        (b"[1,}", "the body is not valid JSON: invalid character (byte 3)"),
        (b"\xef\xbb\xbf{}", "the body is not valid JSON: expected plain UTF-8, got a byte order mark at the start"),
        ("{}".encode("utf-16"), "the body is not valid JSON: invalid character (byte 0)"),
        ("{}".encode("utf-16-le"), "the body is not valid JSON: object keys must be strings (byte 1)"),
        ("{}".encode("utf-32-be"), "the body is not valid JSON: invalid character (byte 0)"),
    ],
)
def test_invalid_json_is_refused_with_its_position(body: bytes, message: str) -> None:
    fault = refusal_of(body)
    assert isinstance(fault, InvalidJson)
    assert (fault.code, fault.message, fault.param) == ("invalid_json", message, None)


@given(documents(Request))
@settings(max_examples=5)
def test_truncated_body_is_invalid_json(document: Any) -> None:
    document["input"] = [{"role": "user", "content": "\U0001f600 \u2028 é"}, {"type": "acme:x", "y": "\U0001f600"}]
    for ensure_ascii in (True, False):
        body = json.dumps(document, ensure_ascii=ensure_ascii).encode()
        for end in range(len(body)):
            assert refusal_of(body[:end]).code == "invalid_json"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b'{"metadata":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
        b'{"tools":[{"type":"function","name":"f","parameters":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}]}",
        b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"input":[{"type":"acme:x","y":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}]}",
    ],
)
def test_endless_nesting_is_too_deep(body: bytes) -> None:
    fault = refusal_of(body)
    assert isinstance(fault, JsonTooDeep)
    assert fault.code == "json_too_deep"


@pytest.mark.parametrize("decode", [decode_request, decode_compact_request, lambda body: decode_as(body, Request)])
def test_nesting_of_a_body_is_allowed_up_to_the_limit(decode: Callable[[bytes], Any]) -> None:
    for depth in (MAX_NESTING - 1, MAX_NESTING):
        body = b'{"acme":' + b"[" * depth + b"]" * depth + b',"model":"m"}'
        if depth + 1 <= MAX_NESTING:
            assert encode(decode(body)).count(b"[") == depth
        else:
            with pytest.raises(JsonTooDeep, match="at most 256 levels"):
                decode(body)


@pytest.mark.parametrize("depth", [300, 800])
def test_stored_rows_are_decoded_over_the_nesting_limit(depth: int) -> None:
    """A stored row may be older than the limit."""
    item = b'{"type":"acme:thing","id":"x_1","y":' + b"[" * depth + b"]" * depth + b"}"
    (read,) = decode_stored(b"[" + item + b"]", list[ItemParam])
    assert encode(read) == item
    request = decode_stored_request(b'{"model":"m","input":[' + item + b"]}")
    assert encode(request).count(b"[") == depth + 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5_000])
@pytest.mark.parametrize(
    ("template", "path"),
    [
        ('{"temperature":%s}', "temperature"),
        ('{"max_output_tokens":%s}', "max_output_tokens"),
        ('{"x":%s}', "x"),
        ('{"x":{"y":[1,%s]}}', "x.y[1]"),
        ('{"input":[{"type":"acme:x","y":%s}]}', "input[0].y"),
        ('{"input":[{"role":"user","content":"a","y":%s}]}', "input[0].y"),
        ('{"input":[{"type":%s}]}', "input[0].type"),
        (
            '{"tools":[{"type":"function","name":"f","parameters":{"two words":%s}}]}',
            'tools[0].parameters["two words"]',
        ),
        ('{"tools":[{"type":"function","function":%s}]}', "tools[0].function"),
        ('{"tools":[{"type":"mcp","server_label":"s","require_approval":[%s]}]}', "tools[0].require_approval[0]"),
        ('{"client_metadata":{"a":%s},"x":1}', "client_metadata.a"),
    ],
)
def test_invalid_number_is_refused_with_its_path(number: str, template: str, path: str) -> None:
    fault = refusal_of((template % number).encode())
    assert (fault.code, fault.param) == ("invalid_value", path)
    assert fault.message.startswith(f"{path}: expected a finite number, got {number[:60]}")


@pytest.mark.parametrize("half", [r"\ud800", r"\udfff", r"\ude00\ud83d", r"a\ud83dz", "\xff", "\xc3", "\xed\xa0\x80"])
@pytest.mark.parametrize(
    ("template", "path"),
    [
        ('{"input":"%s"}', "input"),
        ('{"input":[{"role":"user","content":[{"type":"input_text","text":"%s"}]}]}', "input[0].content[0].text"),
        ('{"tools":[{"type":"function","name":"%s"}]}', "tools[0].name"),
        ('{"metadata":{"k":"%s"}}', "metadata.k"),
        ('{"metadata":{"%s":"v"}}', "metadata"),
        ('{"input":[{"type":"item_reference","id":"%s"}]}', "input[0].id"),
        ('{"input":[{"type":"%s"}]}', "input[0].type"),
        ('{"input":[{"type":"acme:x","y":["%s"]}]}', "input[0].y[0]"),
        ('{"x":{"y":"%s"}}', "x.y"),
        ('{"%s":1}', None),
    ],
)
def test_lone_surrogate_or_invalid_utf8_is_refused_with_its_path(half: str, template: str, path: str | None) -> None:
    """The policy: invalid characters are refused with `invalid_unicode`, never repaired, and never passed through
    either."""
    fault = refusal_of((template % half).encode("latin-1"))
    assert (fault.code, fault.param) == ("invalid_unicode", path)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"x":[1,1e400,[NaN]],"y":NaN}', "x[1]"),
        (b'{"x":{"a":"\\ud800","b":NaN}}', "x.a"),
        (b'{"x":NaN,"\\ud800":1}', None),
    ],
)
def test_first_of_several_invalid_values_is_reported(body: bytes, path: str | None) -> None:
    """ERR-3; of a key and its value, the key."""
    assert refusal_of(body).param == path


def test_first_of_invalid_utf8_and_invalid_json_is_reported() -> None:
    assert refusal_of(b'{"input":{"x":01,"y":"\xff"}}').code == "invalid_json"
    assert refusal_of(b'{"input":"\xff","x":01}').code == "invalid_unicode"


def test_nul_characters_are_preserved() -> None:
    body = rb'{"input":"a\u0000b","x":"\u0000","metadata":{"k\u0000":"\u0000"}}'
    assert json.loads(encode(decode_request(body))) == json.loads(body)


def fault_of(read: Callable[[bytes], object], body: bytes) -> ApiError | None:
    """The error for the client; any other exception fails the test."""
    try:
        read(body)
    except ApiError as fault:
        return fault
    return None


@pytest.mark.parametrize("read", READERS)
@given(body=st.binary(max_size=30))
def test_decoders_raise_only_client_faults_for_any_bytes(read: Any, body: bytes) -> None:
    fault = fault_of(read, body)
    assert fault is None or fault.status == 400


@settings(max_examples=30)
@given(
    document=documents(Request),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3)), min_size=1),
)
def test_decoders_raise_only_client_faults_for_damaged_bodies(
    document: Any, changes: list[tuple[int, int, bytes]]
) -> None:
    """And an accepted body can be encoded and decoded again."""
    body = json.dumps(document).encode()
    for start, length, new in changes:
        body = body[:start] + new + body[start + length :]
    fault = fault_of(decode_request, body)
    if fault:
        assert fault.status == 400
        assert fault.message
    else:
        written = encode(decode_request(body))
        assert json.loads(encode(decode_request(written))) == json.loads(written)


# Valid JSON


def test_string_input_is_one_user_message() -> None:
    """ITEM-8."""
    assert input_items(decode_request(b'{"input":"hi"}')) == [MessageParam(role="user", content="hi")]


@pytest.mark.parametrize("text", ["\x7f", UNKNOWN_TAG, RAW_MARK.decode(), f'{{"{EXTRA_NAME}":{{}}}}'])
def test_text_that_contains_internal_names_is_preserved(text: str) -> None:
    document = {
        "input": text,
        "metadata": {UNKNOWN_TAG: text},
        "client_metadata": {EXTRA_NAME: {"a": text}},
    }
    assert json.loads(encode(decode_request(json.dumps(document).encode()))) == document


def test_restore_raw_restores_unknown_objects_at_any_depth() -> None:
    """Also in fields with arbitrary JSON, where a translation may have put them."""
    item = UnknownItem(kind="acme:x", raw=Raw(b'{"type":"acme:x", "n":1.0}'))
    result = ToolResult(tool_use_id="t", content=[{"in": item}, "text"], extra={"y": Raw(b"[1, 2]")})
    written = encode({"items": [item], "result": result})
    assert written == (
        b'{"items":[{"type":"acme:x", "n":1.0}],"result":{"y":[1, 2],"type":"tool_result","tool_use_id":"t",'
        b'"content":[{"in":{"type":"acme:x", "n":1.0}},"text"]}}'
    )


def test_known_field_overrides_an_unknown_field_of_its_name() -> None:
    message = MessageParam(role="user", content="known", extra={"content": Raw(b'"unknown"'), "type": Raw(b'"acme:x"')})
    assert restore_raw(message) == {"type": "message", "role": "user", "content": "known"}


def test_other_decoders_decode_their_types() -> None:
    assert decode_compact_request(b'{"model":"m","input":"x"}').model == "m"
    assert isinstance(
        decode_item(b'{"type":"message","id":"m","status":"completed","role":"user","content":[]}'), Message
    )
    delta = b'{"type":"response.output_text.delta","sequence_number":1,"item_id":"m","output_index":0,"content_index":0,"delta":"x"}'
    assert isinstance(decode_event(Raw(delta)), OutputTextDelta)
    assert isinstance(decode_event(b'{"type":"response.x.done","sequence_number":1}'), UnknownEvent)
    response = make_initial_response(Request(), id="r", created_at=0)
    assert decode_response(encode(response)) == response
    assert decode_as(b'"auto"', str) == "auto"


REASONING: Final = ("response.reasoning", "response.reasoning_text")
AT_ITEM: Final[dict[str, Any]] = {"sequence_number": 4, "item_id": "rs_1", "output_index": 0, "content_index": 0}


@pytest.mark.parametrize("name", REASONING)
def test_decode_event_reads_both_names_of_reasoning_events(name: str) -> None:
    """STR-10: the hub has one spelling; unknown fields are kept."""
    delta = decode_event(msgspec.json.encode({"type": f"{name}.delta", **AT_ITEM, "delta": "Hm", "x": 1}))
    assert delta == ReasoningDelta(**AT_ITEM, delta="Hm", extra={"x": Raw(b"1")})
    done = decode_event(Raw(msgspec.json.encode({"type": f"{name}.done", **AT_ITEM, "text": "Hm"})))
    assert done == ReasoningDone(**AT_ITEM, text="Hm")


@pytest.mark.parametrize("name", REASONING)
def test_decode_event_refuses_incomplete_reasoning_event(name: str) -> None:
    """STR-10."""
    with pytest.raises(ClientFault) as fault:
        decode_event(msgspec.json.encode({"type": f"{name}.delta", **AT_ITEM}))
    assert fault.value.param == "delta"


# Bodies of agents


CODEX_TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "name": "shell",
        "description": "d",
        "strict": False,
        "parameters": {"type": "object", "properties": {}},
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "d",
        "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
    },
    {
        "type": "namespace",
        "name": "mcp__files",
        "description": "d",
        "tools": [
            {"type": "function", "name": "read", "strict": False, "defer_loading": True, "parameters": {}},
            {"type": "custom", "name": "edit", "format": {"type": "text"}},
        ],
    },
    {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}},
    {"type": "web_search", "external_web_access": False, "search_content_types": ["text", "image"]},
]
CODEX_INPUT: Final[list[tuple[dict[str, Any], Any]]] = [
    ({"type": "additional_tools", "id": "at_1", "role": "developer", "tools": CODEX_TOOLS}, AdditionalTools),
    (
        {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        MessageParam,
    ),
    (
        {
            "type": "message",
            "id": "msg_2",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,", "detail": "original"}],
            "internal_chat_message_metadata_passthrough": {"turn_id": "t"},
        },
        MessageParam,
    ),
    ({"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "g"}, None),
    (
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "read",
            "namespace": "mcp__files",
            "arguments": "{}",
        },
        FunctionCallParam,
    ),
    (
        {
            "type": "function_call_output",
            "id": "fco_1",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "o"}],
        },
        None,
    ),
    (
        {
            "type": "custom_tool_call",
            "call_id": "c2",
            "name": "apply_patch",
            "input": "*** Begin",
            "status": "completed",
        },
        CustomToolCallParam,
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c2", "name": "apply_patch", "output": "Done"},
        CustomToolCallOutputParam,
    ),
    (
        {
            "type": "local_shell_call",
            "call_id": "c3",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"]},
        },
        LocalShellCall,
    ),
    (
        {
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "q", "queries": ["q"]},
        },
        WebSearchCall,
    ),
    ({"type": "tool_search_call", "call_id": "c4", "execution": "client", "arguments": {"query": "q"}}, None),
    (
        {
            "type": "tool_search_output",
            "call_id": "c4",
            "execution": "client",
            "status": "completed",
            "tools": CODEX_TOOLS[:1],
        },
        None,
    ),
    ({"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}}, UnknownItem),
    ({"type": "compaction", "encrypted_content": "e"}, None),
    ({"type": "compaction_trigger"}, CompactionTrigger),
]


def test_codex_request_is_typed_and_encoded_unchanged() -> None:
    document = {
        "model": "m",
        "instructions": "",
        "input": [item for item, _ in CODEX_INPUT],
        "tools": CODEX_TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "xhigh", "summary": "auto", "context": "all"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "i"},
        "generate": False,
    }
    request = decode_request(json.dumps(document).encode())
    for item, (_, expected) in zip(input_items(request), CODEX_INPUT, strict=True):
        assert isinstance(item, expected or ItemParam)
    assert request.tools
    kinds = [FunctionToolParam, CustomTool, NamespaceTool, ToolSearchTool, WebSearchTool]
    assert [type(tool) for tool in request.tools] == kinds
    patch = request.tools[1]
    assert isinstance(patch, CustomTool)
    assert isinstance(patch.format, GrammarFormat)
    assert json.loads(encode(request)) == document


@pytest.mark.parametrize(
    "document",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "open_page", "url": "u"}},
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["q"],
            "results": [{"score": 0.5}],
        },
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "failed",
            "code": "1",
            "container_id": "c",
            "outputs": None,
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "generating", "result": None},
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "c",
            "status": "completed",
            "action": {},
            "pending_safety_checks": [],
        },
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "n",
            "arguments": "{}",
            "output": "o",
            "error": {"code": 1},
        },
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [{"name": "n"}]},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "n", "arguments": "{}"},
        {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed", "action": {"commands": ["ls"]}},
        {
            "type": "apply_patch_call",
            "id": "ap_1",
            "call_id": "c",
            "status": "completed",
            "operation": {"type": "delete_file"},
        },
        {"type": "vtcode:file_change", "id": "vt_1", "status": "failed", "changes": [{"path": "p"}]},
    ],
)
def test_output_items_of_providers_are_decoded_and_encoded_unchanged(document: Any) -> None:
    """ITEM-5, ITEM-6, B-3."""
    body = json.dumps(document).encode()
    assert json.loads(encode(decode_item(body))) == document
    assert json.loads(encode(decode_item_param(body))) == document


def test_create_message_is_a_request_with_a_type() -> None:
    """WS-1."""
    request = decode_create_message(b'{"type":"response.create","model":"m","input":"Hi"}')
    assert request == decode_request(b'{"model":"m","input":"Hi"}')


@pytest.mark.parametrize(
    "message",
    [
        b'{"model":"m"}',
        b'{"type":"response.cancel","model":"m"}',
        b'{"type":"response.create","model":5}',
        b'{"type":"response.create","acme":1}',
    ],
)
def test_create_message_with_a_fault_or_unknown_fields_is_left_to_the_lenient_decoder(message: bytes) -> None:
    assert decode_create_message(message) is None


@pytest.mark.parametrize("metadata", [{}, {"antiphon:encoded_tools": "x"}, {"x": "antiphon:encoded_instructions"}])
@pytest.mark.parametrize("tools_size", [10, LARGE_SETTING])
@pytest.mark.parametrize("instructions_size", [10, LARGE_SETTING])
def test_settings_that_are_encoded_already_are_copied(
    tools_size: int, instructions_size: int, metadata: dict[str, str]
) -> None:
    echo = Raw(b'[{"type":"function","name":"%b"}]' % (b"x" * tools_size))
    text = Raw(b'"%b"' % (b"y" * instructions_size))
    tools: ToolList[ToolParam] = ToolList([FunctionToolParam(name="x")], echo)
    request = replace(Request(tools=tools, metadata=metadata), instructions=text)
    response = make_initial_response(request, id="resp_1", created_at=1)
    plain = encode(make_initial_response(Request(metadata=metadata), id="resp_1", created_at=1))
    expected = plain.replace(b'"tools":[]', b'"tools":' + echo)
    assert encode(response) == expected.replace(b'"instructions":null', b'"instructions":' + text)
    assert b"".join(encode_pieces(response)) == encode(response)


def test_pieces_of_a_request_with_shared_tools_are_its_json() -> None:
    request = decode_request(b'{"input":"Hi","tools":[{"type":"function","name":"x"},{"type":"a:b","c": 1}]}')
    assert encode_pieces(request) == [encode(request)]
    assert b'{"type":"a:b","c": 1}' in encode(request)


def test_typed_request_keeps_every_field() -> None:
    """The fields are copied one by one, so a new field must not be forgotten."""
    values = {name: object() for name in Request.__struct_fields__ if name != "tools"}
    request = _request_with_tools(_RawToolsRequest(**values))  # type: ignore[arg-type]
    assert {name: getattr(request, name) for name in values} == values


@pytest.mark.parametrize(
    ("body", "is_typed"),
    [
        (b'{"model":"m","input":[{"role":"user","type":"message","content":"Hi"}]}', True),
        (b'{"model":"m","input":"Hi","new_field":1}', False),
        (b'{"model":"m","input":[{"type":"hologram"}]}', False),
        (b'{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"hologram"}]}]}', False),
    ],
)
def test_client_request_tells_whether_all_of_it_is_known(body: bytes, is_typed: bool) -> None:
    assert decode_client_request(body) == (decode_request(body), is_typed)
