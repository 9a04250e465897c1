"""Lenient decoding: unknown types and fields are kept (ITEM-5, REQ-7), omitted types are inferred (ITEM-8), and errors
name the path, the received value and the expected one (ERR-3)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import Raw, Struct
from tests.generate.schema import json_values
from tests.generate.shapes import UNKNOWN_TYPES, at, documents, kind_of, replaced, spots, without

from antiphon.errors import ClientFault, InvalidValue, MissingField
from antiphon.protocol.base import EXTRA_NAME, UNKNOWN_TAG
from antiphon.protocol.codec import decode_as, decode_event, decode_item, decode_item_param, decode_request, encode
from antiphon.protocol.content import InputText, OutputTextParam, UnknownAnnotation, UnknownContent
from antiphon.protocol.events import StreamEvent, UnknownEvent
from antiphon.protocol.items import (
    Compaction,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputParam,
    FunctionCallParam,
    Item,
    ItemParam,
    ItemReference,
    Message,
    MessageParam,
    Reasoning,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.request import JsonSchemaFormatParam, Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import (
    AllowedToolsParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    UnknownTool,
    UnknownToolChoice,
)

USER: Final = {"type": "message", "role": "user", "content": "hi"}


def as_bytes(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def request_of(document: Any) -> Request:
    return decode_request(as_bytes(document))


def items_of(request: Request) -> list[ItemParam]:
    assert isinstance(request.input, list)
    return request.input


def refusal_of(document: Any) -> ClientFault:
    with pytest.raises(ClientFault) as refused:
        request_of(document)
    assert refused.value.status == 400
    return refused.value


# Unknown types and fields


@pytest.mark.without_coverage
@pytest.mark.parametrize("type", [Request, ItemParam, Item, Response, StreamEvent])
@given(data=st.data())
def test_decoded_documents_are_encoded_unchanged(type: Any, data: st.DataObject) -> None:
    """ITEM-1, ITEM-5, TOOL-2, TOOL-6: every item, tool, choice, part and event, unknown ones among them."""
    document = data.draw(documents(type))
    assert json.loads(encode(decode_as(as_bytes(document), type))) == document


@given(
    data=st.data(),
    names=st.lists(st.sampled_from(["x", "", "not yet", UNKNOWN_TAG, EXTRA_NAME, "\u2028", "kind"])),
)
def test_unknown_fields_are_kept_at_every_level(data: st.DataObject, names: list[str]) -> None:
    """REQ-7, ITEM-6: in the request, an item, a part, a tool, anything inside them; also under our internal names."""
    document = data.draw(documents(Request))
    objects = [(), *(spot.keys for spot in spots(document, Request) if not spot.is_map)]
    objects = [keys for keys in objects if isinstance(at(document, keys), dict)]
    for name in names:
        at(document, data.draw(st.sampled_from(objects)))[name] = data.draw(json_values)
    assert json.loads(encode(request_of(document))) == document


@given(body=documents(Request), data=st.data())
def test_encoding_is_stable(body: Any, data: st.DataObject) -> None:
    """Unknown fields survive repeated decoding and encoding unchanged."""
    body["x_unknown"] = data.draw(json_values)
    once = encode(request_of(body))
    assert encode(decode_request(once)) == once


def _objects(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    keys = st.lists(st.sampled_from(['"a"', '"b\\u0062"', '"type"', '"\\/"']), unique=True, max_size=3)
    return st.builds(
        lambda names, values, space: (
            "{" + space + ("," + space).join(f"{n}{space}:{v}" for n, v in zip(names, values, strict=False)) + "}"
        ),
        keys,
        st.lists(inner, min_size=3, max_size=3),
        spaces,
    )


spaces: Final = st.sampled_from(["", " ", "\n", "\r\n\t"])
spellings: Final = st.sampled_from(
    [
        "1.50",
        "1E+2",
        "-0",
        "0.10e-3",
        "100000000000000000000000",
        "true",
        "null",
        '"\\u0061\\/"',
        '"é\u2028"',
        '"\\ud83d\\ude00"',
        '""',
    ]
)
json_texts: Final = st.recursive(
    spellings,
    lambda inner: (
        _objects(inner)
        | st.builds(lambda members, space: f"[{space}{(space + ',').join(members)}]", st.lists(inner), spaces)
    ),
    max_leaves=5,
)


@st.composite
def unknown_objects(draw: st.DrawFn, types: tuple[str, ...] = UNKNOWN_TYPES) -> str:
    """An object of an unknown type in an unusual spelling."""
    kind = json.dumps(draw(st.sampled_from(types)))
    space = draw(spaces)
    return (
        f'{{{space}"value"{space}:{draw(json_texts)},"type"{space}:{space}{kind}{space},"sequence_number":{space}7 }}'
    )


@given(unknown_objects(), unknown_objects(tuple(filter(None, UNKNOWN_TYPES))))
def test_object_of_unknown_type_is_encoded_byte_by_byte(raw: str, raw_part: str) -> None:
    """ITEM-5: an item, a tool, a tool in a group, a part, an annotation, a choice: white space and the spelling of
    numbers too."""
    part = f'{{"type":"output_text","text":"x","annotations":[{raw}]}}'
    body = (
        f'{{"input":[{raw},{{"type":"message","role":"assistant","content":[{raw_part},{part}]}}],"tool_choice":{raw},"tools":[{raw},'
        f'{{"type":"namespace","name":"n","tools":[{raw}]}}]}}'
    )
    request = decode_request(body.encode())
    item, message = items_of(request)
    assert isinstance(message, MessageParam)
    assert isinstance(message.content, list)
    unknown, text = message.content
    assert isinstance(text, OutputTextParam)
    assert text.annotations
    assert request.tools
    tool, group = request.tools
    assert isinstance(group, NamespaceTool)
    objects: list[Any] = [item, request.tool_choice, tool, group.tools[0], text.annotations[0], unknown]
    kinds = [UnknownItem, UnknownToolChoice, UnknownTool, UnknownTool, UnknownAnnotation, UnknownContent]
    assert [type(value) for value in objects] == kinds
    assert [bytes(value.raw) for value in objects] == [raw.encode()] * 5 + [raw_part.encode()]
    assert encode(request).replace(raw_part.encode(), raw.encode()).count(raw.encode()) == 6


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_content_part_with_an_empty_type_is_refused(role: str) -> None:
    """ERR-3: its type may be unknown, but not empty."""
    body = {"input": [{"type": "message", "role": role, "content": [{"type": "", "text": "x"}]}]}
    with pytest.raises(
        InvalidValue, match=r'^input\[0\]\.content\[0\]\.type: expected .*"input_text".*, got ""$'
    ) as caught:
        decode_request(json.dumps(body).encode())
    assert caught.value.param == "input[0].content[0].type"


@given(unknown_objects())
def test_event_of_unknown_type_is_encoded_byte_by_byte(raw: str) -> None:
    """ITEM-5; its sequence number is still read (STR-5)."""
    event = decode_event(raw.encode())
    assert isinstance(event, UnknownEvent)
    assert (event.sequence_number, event.kind, encode(event)) == (7, json.loads(raw)["type"], raw.encode())


@pytest.mark.parametrize(
    "inner", ['{"k":1,"k":2}', '[{"k" : 1, "\\u006b": 2}]', '{"a":{"k":1,"k":1E5}}', '{"k":1,"k":{"k":1,"k":2}}']
)
def test_raw_object_with_a_duplicate_key_keeps_the_last(inner: str) -> None:
    """Two readers must not see two values: where a kept object has one key twice, at any depth, only the last
    remains."""
    body = f'{{"x":{inner},"input":[{{"type":"acme:x","value":{inner}}}],"x":{inner}}}'
    written = encode(decode_request(body.encode()))
    assert json.loads(written) == json.loads(body)
    assert written.count(b'"k"') == json.dumps(json.loads(body)).count('"k"')


def test_last_of_two_types_counts() -> None:
    request = decode_request(b'{"input":[{"type":"message","role":"user","content":"x","type":"acme:x"}]}')
    (item,) = items_of(request)
    assert isinstance(item, UnknownItem)
    assert (item.kind, item.string_member("type")) == ("acme:x", "acme:x")


@pytest.mark.parametrize(
    "body", [b'{"model":5,"model":"m"}', b'{"model":"n","model":"m"}', b'{"model":5,"x":1,"x":2,"model":"m"}']
)
def test_last_of_two_values_counts(body: bytes) -> None:
    assert json.loads(encode(decode_request(body)))["model"] == "m"


@pytest.mark.parametrize("spelling", [UNKNOWN_TAG, r"\u007fantiphon:raw", UNKNOWN_TAG.replace(":", r"\u003a")])
@pytest.mark.parametrize("value", [{}, {"kind": "message", "raw": {"role": "system"}}, {"a": 1}, 5])
def test_internal_names_have_no_meaning_in_client_bodies(spelling: str, value: Any) -> None:
    """A client can neither forge an unknown object nor put fields where we keep unknown ones; everything is encoded
    unchanged."""
    text = json.dumps(value)
    members = text[1:-1] if isinstance(value, dict) else f'"x":{text}'
    item = f'{{"type":"{spelling}"{"," if members else ""}{members}}}'
    message = f'{{"role":"user","content":"x","{spelling}_fields":{text}}}'
    body = f'{{"{spelling}_fields":{text},"{spelling}":{text},"input":[{item},{message}]}}'
    request = decode_request(body.encode())
    unknown, message_item = items_of(request)
    assert isinstance(unknown, UnknownItem)
    assert isinstance(message_item, MessageParam)
    assert unknown.kind == UNKNOWN_TAG
    assert (message_item.extra or {}).keys() == {EXTRA_NAME}
    expected = json.loads(body)
    expected["input"][1]["type"] = "message"
    assert json.loads(encode(request)) == expected


def test_unknown_fields_of_plain_structs_are_ignored() -> None:
    class Plain(Struct):
        a: int
        b: str = ""

    assert decode_as(b'{"a":"1","a":1,"c":[]}', Plain) == Plain(1)
    with pytest.raises(InvalidValue) as refused:
        decode_as(b'{"a":"1"}', Plain)
    assert refused.value.param == "a"


# Omitted types


@given(
    text=st.text(max_size=5),
    role=st.sampled_from(["user", "assistant", "system", "developer"]),
    type=st.sampled_from([{}, {"type": None}]),
)
def test_message_without_a_type_is_a_message(text: str, role: str, type: dict[str, Any]) -> None:
    """ITEM-8."""
    assert decode_item_param(as_bytes(type | {"role": role, "content": text})) == decode_item_param(
        as_bytes({"type": "message", "role": role, "content": text})
    )
    parts = [{"type": "input_text", "text": text}]
    (item,) = items_of(request_of({"input": [type | {"role": role, "content": parts, "x": 1}]}))
    assert isinstance(item, MessageParam)
    assert (item.content, item.extra) == ([InputText(text=text)], {"x": Raw(b"1")})


@pytest.mark.parametrize(
    "item", [{"id": "msg_1"}, {"type": None, "id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}]
)
def test_item_reference_without_a_type_is_accepted(item: dict[str, Any]) -> None:
    """The schema allows null or absent; encoded it is present."""
    assert request_of({"input": [item]}).input == [ItemReference(id="msg_1")]
    assert decode_as(as_bytes(item), ItemReference) == ItemReference(id="msg_1")


@pytest.mark.parametrize(
    "format", [{"schema": {}}, {"name": "n"}, {"type": None, "name": "n", "schema": {"type": "object"}}]
)
def test_json_schema_format_without_a_type_is_accepted(format: dict[str, Any]) -> None:
    text = request_of({"text": {"format": format}}).text
    assert text
    assert isinstance(text.format, JsonSchemaFormatParam)


def test_call_without_a_type_is_refused() -> None:
    fault = refusal_of({"input": [{"id": "fc_1", "call_id": "c", "arguments": "{}"}]})
    assert (fault.code, fault.param) == ("missing_field", "input[0].type")


# Errors


WRONG: Final[list[Any]] = [5, 5.5, "no such word", True, None, [], {}]


def broken(document: Any, data: st.DataObject) -> tuple[Any, str, Any]:
    """The document with one fault in it, its path, and the received value (`...` if a field was left out)."""
    candidates = spots(document, Request)
    assume(candidates)
    spot = data.draw(st.sampled_from(candidates))
    wrong = [value for value in WRONG if kind_of(value) not in spot.kinds]
    ways: list[tuple[str, Any]] = (
        [("kind", value) for value in wrong]
        + [("word", "no such word")] * bool(spot.words)
        + [("gone", None)] * spot.required
    )
    assume(ways)
    way, value = data.draw(st.sampled_from(ways))
    if way == "gone":
        return without(document, spot.keys), spot.path, ...
    return replaced(document, spot.keys, value), spot.path, value


@settings(max_examples=30)
@given(data=st.data())
def test_invalid_value_is_reported_with_path_received_and_expected(data: st.DataObject) -> None:
    """ERR-3."""
    document, path, received = broken(data.draw(documents(Request)), data)
    fault = refusal_of(document)
    assert fault.param == path
    if received is ...:
        assert isinstance(fault, MissingField)
        assert fault.message.startswith(f"{path} is missing: ")
    else:
        assert isinstance(fault, InvalidValue)
        assert fault.message.startswith(f"{path}: expected ")
        assert fault.message.endswith(f", got {json.dumps(received)}")


@given(data=st.data())
def test_invalid_type_is_reported_at_its_type_field(data: st.DataObject) -> None:
    """ERR-3: of the wrong kind, or a word that is not allowed."""
    document = data.draw(documents(Request))
    typed = [spot for spot in spots(document, Request) if spot.is_typed and isinstance(at(document, spot.keys), dict)]
    assume(typed)
    spot = data.draw(st.sampled_from(typed))
    fault = refusal_of(replaced(document, (*spot.keys, "type"), data.draw(st.sampled_from([5, [], {}, False]))))
    assert isinstance(fault, InvalidValue)
    assert fault.param == f"{spot.path}.type"


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        (
            {"text": {"format": {"type": "yaml"}}},
            "text.format.type",
            'expected one of "text", "json_object", "json_schema", got "yaml"',
        ),
        (
            {"text": {"format": {}}},
            "text.format.type",
            'is missing: expected one of "text", "json_object", "json_schema", got {}',
        ),
        ({"input": [USER, {"type": 5}]}, "input[1].type", 'expected one such as "message", "function_call"'),
        (
            {"input": [USER, {"content": "x"}]},
            "input[1].type",
            'is missing: expected one such as "message", "function_call", "function_call_output", "reasoning", got',
        ),
        (
            {"input": [{"role": "king", "content": ""}]},
            "input[0].role",
            'expected one of "assistant", "developer", "system", "user", got "king"',
        ),
        ({"metadata": {"two words": 5}}, 'metadata["two words"]', "expected a string of at most 512 characters, got 5"),
        ({"metadata": {"": 5}}, 'metadata[""]', "expected a string of at most 512 characters, got 5"),
        (
            {"metadata": {"k" * 65: ""}},
            "metadata",
            "expected a string of at most 64 characters as a key, got",
        ),
        (
            {"metadata": {str(n): "" for n in range(17)}},
            "metadata",
            "expected an object of at most 16 strings of at most 512 characters, got 17 entries",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": []}},
            "tool_choice.tools",
            "expected an array of 1 to 128 objects, got 0 entries",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": 5}},
            "tool_choice.tools",
            "expected an array of 1 to 128 objects, got 5",
        ),
        ({"conversation": 5}, "conversation", "expected a string or an object or null, got 5"),
        ({"context_management": [{}, 5]}, "context_management[1]", "expected an object, got 5"),
        ({"stream": "yes"}, "stream", 'expected true or false or null, got "yes"'),
        ({"max_output_tokens": 15}, "max_output_tokens", "expected an integer from 16 to 2147483647, got 15"),
        ({"top_logprobs": 21}, "top_logprobs", "expected an integer from 0 to 20, got 21"),
        ({"top_logprobs": "1"}, "top_logprobs", 'expected an integer from 0 to 20 or null, got "1"'),
        ({"temperature": "0.5"}, "temperature", 'expected a number or null, got "0.5"'),
        ({"temperature": True}, "temperature", "expected a number or null, got true"),
        (
            {"max_output_tokens": True},
            "max_output_tokens",
            "expected an integer from 16 to 2147483647 or null, got true",
        ),
        (
            {"max_output_tokens": 20.5},
            "max_output_tokens",
            "expected an integer from 16 to 2147483647 or null, got 20.5",
        ),
    ],
)
def test_expected_value_is_described_in_words(document: Any, path: str, message: str) -> None:
    """ERR-3."""
    fault = refusal_of(document)
    assert fault.param == path
    assert message in fault.message


def test_object_of_another_type_than_the_only_allowed_one_is_refused() -> None:
    with pytest.raises(InvalidValue) as refused:
        decode_as(b'[{"type":"input_text","text":"x"},{"type":"text","text":"x"}]', list[InputText])
    assert refused.value.message == '[1].type: expected "input_text", got "text"'


# Tools


def test_nested_chat_tool_is_explained() -> None:
    """TOOL-1, C-3: the message shows the flat form with the tool's own name; the type may be missing."""
    for type in ({"type": "function"}, {}):
        fault = refusal_of({"tools": [{**type, "function": {"name": "get_weather", "parameters": {}}}]})
        assert (fault.code, fault.param) == ("missing_field", "tools[0].name")
        assert "nested as in Chat Completions" in fault.message
        assert '{"type":"function","name":"get_weather","description":…,"parameters":…,"strict":…}' in fault.message


@pytest.mark.parametrize("function", [None, 5, {}, {"name": 5}])
def test_nested_chat_tool_without_a_name_is_explained(function: Any) -> None:
    """TOOL-1."""
    assert '{"type":"function","name":…,' in refusal_of({"tools": [{"type": "function", "function": function}]}).message


def test_nested_chat_tool_choice_is_explained() -> None:
    """TOOL-2, C-3."""
    fault = refusal_of({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}})
    assert fault.param == "tool_choice.name"
    assert '{"type":"function","name":"get_weather"}' in fault.message


@pytest.mark.parametrize("document", [{"tools": [{"type": "function"}]}, {"tool_choice": {"type": "function"}}])
def test_flat_tool_without_a_name_is_not_called_nested(document: Any) -> None:
    assert "Chat Completions" not in refusal_of(document).message


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "f"}, SpecificFunction(name="f")),
        ({"type": "custom", "name": "f"}, SpecificCustom(name="f")),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            AllowedToolsParam(tools=[SpecificFunction(name="f")], mode="required"),
        ),
        (
            {"type": "mcp", "server_label": "s"},
            UnknownToolChoice(kind="mcp", raw=Raw(b'{"type": "mcp", "server_label": "s"}')),
        ),
    ],
)
def test_every_tool_choice_is_decoded(choice: Any, read: Any) -> None:
    """TOOL-2."""
    assert request_of({"tool_choice": choice}).tool_choice == read


@pytest.mark.parametrize(
    "output",
    [
        "plain",
        [{"type": "input_text", "text": "t"}],
        [{"type": "input_image", "image_url": "data:,", "detail": "low"}, {"type": "input_file", "file_data": "x"}],
        [{"type": "input_video", "video_url": "v"}, {"type": "acme:hologram", "x": 1.0}],
    ],
)
def test_tool_output_is_a_string_or_parts(output: Any) -> None:
    """TOOL-6."""
    document = {"input": [{"type": "function_call_output", "call_id": "c", "output": output}]}
    (item,) = items_of(request_of(document))
    assert isinstance(item, FunctionCallOutputParam)
    assert json.loads(encode(item.output)) == output


# Items


@pytest.mark.parametrize(
    "sent", [Message, FunctionCall, FunctionCallOutput, Reasoning, Compaction, CustomToolCall, CustomToolCallOutput]
)
@given(data=st.data())
@settings(max_examples=20)
def test_every_output_item_can_be_sent_back_as_input(sent: Any, data: st.DataObject) -> None:
    """ITEM-6: for every output shape, reasoning with content and unknown fields included."""
    document = data.draw(documents(sent)) | {"x": data.draw(json_values)}
    if "call_id" in document:
        document["call_id"] = "c"  # REQ-8 limits what clients write, here and below
    if sent is FunctionCall:
        document["name"] = "f"
    if sent is Message:
        document["content"] = [part for part in document["content"] if not part.get("annotations")]
    answer = encode(decode_item(as_bytes(document)))
    assert json.loads(encode(decode_item_param(answer))) == document


@pytest.mark.parametrize(
    ("document", "read"),
    [
        ({"type": "item_reference", "id": "i"}, ItemReference),
        ({"type": "reasoning", "summary": [], "content": None, "encrypted_content": "e"}, ReasoningParam),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "refusal", "refusal": "no"}],
                "phase": "commentary",
            },
            MessageParam,
        ),
        ({"type": "message", "role": "developer", "content": "d"}, MessageParam),
        ({"type": "message", "role": "system", "content": "s"}, MessageParam),
        (
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "u", "detail": "original"}],
            },
            MessageParam,
        ),
        ({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, FunctionCallParam),
        ({"type": "function_call_output", "call_id": "c", "output": "o"}, FunctionCallOutputParam),
    ],
)
def test_input_accepts_every_item_of_the_specification(document: Any, read: type) -> None:
    """ITEM-1, ITEM-7."""
    (item,) = items_of(request_of({"input": [document]}))
    assert isinstance(item, read)
    assert json.loads(encode(item)) == document


def test_number_of_entries_has_an_exact_bound() -> None:
    """The body needs lenient decoding, since a message has no type."""
    metadata = {f"k{at}": "v" for at in range(16)}
    body = {"input": [{"role": "user", "content": "hi"}], "metadata": metadata}
    assert decode_request(encode(body)).metadata == metadata
    with pytest.raises(InvalidValue, match=r"metadata: .*got 17 entries"):
        decode_request(encode({**body, "metadata": {**metadata, "k16": "v"}}))
