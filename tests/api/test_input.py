"""docs/errors.md, "Input", over sockets: invalid input is refused before the upstream receives anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.api.probing import ASKED, Answer, Probed, head, probed
from tests.running import read_all

from antiphon.protocol.nesting import MAX_NESTING

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
MIB = 1024 * 1024
WHOLE = b'{"model":"mock-1","input":"hi"}'
OPEN = WHOLE[:-1] + b","  # a member and a brace follow


@pytest.fixture(scope="module")
def shared() -> Iterator[Probed]:
    with probed() as place:
        yield place


@pytest.fixture(scope="module")
def shared_before_responses() -> Iterator[Probed]:
    with probed(dialect="responses", strict=False) as place:
        yield place


@pytest.fixture
def place(shared: Probed) -> Iterator[Probed]:
    shared.begin()
    yield shared
    shared.settle()


@pytest.fixture
def place_before_responses(shared_before_responses: Probed) -> Iterator[Probed]:
    shared_before_responses.begin()
    yield shared_before_responses
    shared_before_responses.settle()


# Invalid JSON

NO_JSON = {
    "an empty body": b"",
    "white space": b" \r\n\t",
    "null": b"null",
    "an array": b"[]",
    "an array of requests": b"[" + WHOLE + b"]",
    "a string": b'"hi"',
    "a number": b"12",
    "true": b"true",
    "garbage behind it": WHOLE + b"x",
    "a second request behind it": WHOLE + WHOLE,
    "a NUL behind it": WHOLE + b"\x00",
    "cut in a name": WHOLE[:4],
    "cut in a value": WHOLE[:13],
    "cut before the brace": WHOLE[:-1],
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "UTF-16 with a mark": WHOLE.decode().encode("utf-16"),
    "UTF-16, little end first": WHOLE.decode().encode("utf-16-le"),
    "UTF-16, big end first": WHOLE.decode().encode("utf-16-be"),
    "UTF-32": WHOLE.decode().encode("utf-32"),
    "single quotes": WHOLE.replace(b'"', b"'"),
    "a comma too many": WHOLE[:-1] + b",}",
    "a comment": b"// hi\n" + WHOLE,
    "a raw NUL in a string": WHOLE.replace(b"hi", b"a\x00b"),
    "a raw line break in a string": WHOLE.replace(b"hi", b"a\nb"),
    "a no-break space before it": b"\xc2\xa0" + WHOLE,
    "a form": b"model=mock-1&input=hi",
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_body_that_is_no_json_object_is_invalid_json(place: Probed, body: bytes) -> None:
    """HTTP-1. Input: empty body, `null`, `[]`, trailing garbage, cut JSON, BOM, UTF-16."""
    place.post(body).tells(400, "invalid_json")
    assert place.seen == []


@pytest.mark.parametrize("at", range(1, len(WHOLE)))
def test_truncated_body_is_refused_with_its_length(place: Probed, at: int) -> None:
    """HTTP-1."""
    answer = place.post(WHOLE[:at])
    answer.tells(400, "invalid_json")
    assert f"after {at} bytes" in answer.error["message"]
    assert place.seen == []


def test_white_space_around_the_body_is_accepted(place: Probed) -> None:
    assert place.post(b" \r\n\t" + WHOLE + b"\n ").status == 200


# Depth


def lists(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def objects(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


TOO_DEEP = {
    "100,000 brackets at the top": lists(100_000),
    "100,000 brackets that never close": b"[" * 100_000,
    "100,000 braces at the top": objects(100_000),
    "in the input": b'{"model":"mock-1","input":' + lists(5000) + b"}",
    "in a message": b'{"model":"mock-1","input":[{"role":"user","content":' + lists(5000) + b"}]}",
    "in a tool's schema": OPEN + b'"tools":[{"type":"function","name":"f","parameters":' + objects(5000) + b"}]}",
    "in an unknown tool": OPEN + b'"tools":[{"type":"acme:tool","x":' + objects(5000) + b"}]}",
    "in metadata": OPEN + b'"metadata":{"a":' + lists(5000) + b"}}",
    "as metadata": OPEN + b'"metadata":' + objects(5000) + b"}",
    "in the client's own metadata": OPEN + b'"client_metadata":' + objects(5000) + b"}",
    "in the schema of the answer": OPEN
    + b'"text":{"format":{"type":"json_schema","name":"n","schema":'
    + objects(5000)
    + b"}}}",
    "in a choice": OPEN + b'"tool_choice":' + objects(5000) + b"}",
    "in place of a number": OPEN + b'"temperature":' + lists(5000) + b"}",
    "in an unknown field": OPEN + b'"acme":' + lists(5000) + b"}",
    "in an unknown item": b'{"model":"mock-1","input":[{"type":"acme:thing","x":' + lists(5000) + b"}]}",
}


@pytest.mark.parametrize("body", TOO_DEEP.values(), ids=TOO_DEEP)
def test_deeply_nested_json_is_refused(place: Probed, body: bytes) -> None:
    """Input: 100,000 nested brackets; 5,000 deep inside a tool's schema or metadata."""
    place.post(body).tells(400, "json_too_deep")
    assert place.seen == []


@pytest.mark.parametrize("depth", [30, 100, *range(245, 260), 300, 450, 900, 1000, 1500])
def test_nesting_is_accepted_up_to_the_limit(place: Probed, depth: int) -> None:
    """Whatever can be decoded can also be encoded: no depth passes the check and then fails on the way to the
    upstream."""
    schema = b'{"type":"object","properties":{"p":' + objects(depth) + b"}}"
    items = b'[{"type":"acme:thing","x":' + lists(depth) + b'},{"role":"user","content":"hi"}]'
    for body in (
        OPEN + b'"tools":[{"type":"function","name":"f","parameters":' + schema + b"}]}",
        OPEN + b'"acme":' + lists(depth) + b"}",
        OPEN + b'"text":{"format":{"type":"json_schema","name":"n","schema":' + schema + b"}}}",
        b'{"model":"mock-1","input":' + items + b"}",
    ):
        before = len(place.seen)
        answer = place.post(body)
        around = max(
            body[: body.index(part)].count(b"{") + body[: body.index(part)].count(b"[")
            for part in (lists(depth), objects(depth))
            if part in body
        )
        if depth + around > MAX_NESTING:
            answer.tells(400, "json_too_deep")
            assert len(place.seen) == before
        else:
            assert answer.status == 200
            assert len(place.seen) == before + 1


# Duplicate keys


def test_duplicate_key_is_resolved_to_its_last_value(place: Probed) -> None:
    """Input: the same key twice."""
    body = b'{"model":"other","input":"first","input":"second","model":"mock-1","temperature":0.1,"temperature":0.9}'
    assert place.post(body).json["temperature"] == 0.9
    [received] = place.seen
    for name in (b'"model"', b'"temperature"', b'"messages"'):
        assert received.body.count(name) == 1
    assert (received.json["model"], received.json["temperature"]) == ("mock-1", 0.9)
    assert b"first" not in received.body


TWICE = {
    "in an unknown field": (OPEN + b'"acme":{"k":"first","k":"second"}}', b'"acme"'),
    "in an unknown field, one of them escaped": (OPEN + b'"acme":{"k":"first","\\u006b":"second"}}', b'"acme"'),
    "an unknown field": (OPEN + b'"acme":"first","acme":"second"}', b'"acme"'),
    "deep in a schema": (
        OPEN
        + b'"tools":[{"type":"function","name":"f","parameters":{"type":"object","k":{"k":"first","k":"second"}}}]}',
        b'"parameters"',
    ),
    "in an unknown item": (
        b'{"model":"mock-1","input":[{"type":"acme:thing","k":"first","k":"second"},{"role":"user","content":"hi"}]}',
        b'"acme:thing"',
    ),
    "the type of an item": (
        b'{"model":"mock-1","input":[{"type":"first:thing","type":"acme:thing"},{"role":"user","content":"hi"}]}',
        b'"acme:thing"',
    ),
}


@pytest.mark.parametrize(("body", "name"), TWICE.values(), ids=TWICE)
def test_duplicate_key_in_passed_through_json_is_sent_once(
    place_before_responses: Probed, body: bytes, name: bytes
) -> None:
    """Input: the same key twice, in content that we pass through unchanged."""
    assert place_before_responses.post(body).status == 200
    [received] = place_before_responses.seen
    assert received.body.count(name) == 1
    assert b"first" not in received.body


# Numbers

NO_NUMBERS = [
    ("temperature", "NaN"),
    ("temperature", "Infinity"),
    ("temperature", "-Infinity"),
    ("temperature", "1e400"),
    ("temperature", "-1e400"),
    ("temperature", '"0.5"'),
    ("temperature", "true"),
    ("temperature", "[]"),
    ("max_output_tokens", "true"),
    ("max_output_tokens", "16.5"),
    ("max_output_tokens", '"100"'),
    ("max_output_tokens", "1e400"),
    ("max_output_tokens", "NaN"),
    ("max_output_tokens", "-1"),
    ("top_logprobs", "false"),
    ("top_logprobs", "21"),
    ("max_tool_calls", "true"),
    ("stream", "1"),
    ("stream", '"true"'),
    ("store", "0"),
    ("acme", "NaN"),
    ("acme", "1e309"),
]


@pytest.mark.parametrize(("field", "value"), NO_NUMBERS)
def test_invalid_number_is_refused_with_its_path(place: Probed, field: str, value: str) -> None:
    """ERR-3. Input: NaN, Infinity, 1e400, `"0.5"` for a number, `true` for an integer."""
    place.post(OPEN + f'"{field}":{value}}}'.encode()).tells(400, "invalid_value", field)
    assert place.seen == []


NUMBERS_INSIDE = {
    "tools[0].parameters.a": b'"tools":[{"type":"function","name":"f","parameters":{"a":1e400}}]',
    "tools[0].parameters.b[1]": b'"tools":[{"type":"function","name":"f","parameters":{"b":[1,-Infinity]}}]',
    "tools[0].x": b'"tools":[{"type":"acme:tool","x":1e400}]',
    "text.format.schema.maximum": b'"text":{"format":{"type":"json_schema","name":"n","schema":{"maximum":NaN}}}',
    "metadata.a": b'"metadata":{"a":1e400}',
    "client_metadata.a": b'"client_metadata":{"a":NaN}',
    "acme.a[1]": b'"acme":{"a":[1,1e400]}',
}


@pytest.mark.parametrize(("path", "member"), NUMBERS_INSIDE.items())
def test_invalid_number_in_passed_through_json_is_refused(place: Probed, path: str, member: bytes) -> None:
    """Input: the same, inside JSON that belongs to the client."""
    place.post(OPEN + member + b"}").tells(400, "invalid_value", path)
    assert place.seen == []


@pytest.mark.parametrize("value", ["01", "+1", ".5", "1.", "0x10", "1_000", "1e"])
def test_nan_and_infinity_are_invalid_json(place: Probed, value: str) -> None:
    place.post(OPEN + f'"temperature":{value}}}'.encode()).tells(400, "invalid_json")
    assert place.seen == []


# Characters

PLACES = {
    "input": '{"model":"mock-1","input":"%"}',
    "model": '{"model":"%","input":"hi"}',
    "instructions": '{"model":"mock-1","input":"hi","instructions":"%"}',
    "input[0].content[0].text": '{"model":"mock-1","input":[{"role":"user","content":[{"type":"input_text","text":"%"}]}]}',
    "input[0].id": '{"model":"mock-1","input":[{"type":"message","role":"user","id":"%","content":"hi"}]}',
    "input[0].call_id": '{"model":"mock-1","input":[{"type":"function_call_output","call_id":"%","output":"x"}]}',
    "input[0].x": '{"model":"mock-1","input":[{"type":"acme:thing","x":"%"}]}',
    "tools[0].name": '{"model":"mock-1","input":"hi","tools":[{"type":"function","name":"%"}]}',
    "tools[0].parameters": '{"model":"mock-1","input":"hi","tools":[{"type":"function","name":"f","parameters":{"%":1}}]}',
    "metadata.a": '{"model":"mock-1","input":"hi","metadata":{"a":"%"}}',
    "metadata": '{"model":"mock-1","input":"hi","metadata":{"%":"a"}}',
    "previous_response_id": '{"model":"mock-1","input":"hi","previous_response_id":"%"}',
    "acme": '{"model":"mock-1","input":"hi","acme":"%"}',
    "": '{"model":"mock-1","input":"hi","%":1}',
}
NO_CHARACTERS = {
    "the first half of a pair": rb"a\ud800b",
    "the second half of a pair": rb"a\udc00b",
    "the halves in the wrong order": rb"\udc00\ud800",
    "a half at the end": rb"a\ud83d",
    "a byte alone": b"a\xffb",
    "an overlong slash": b"\xc0\xaf",
    "half of a character": b"\xf0\x9f\x98",
    "a half of a pair, encoded": b"\xed\xa0\x80",
    "beyond the last character": b"\xf4\x90\x80\x80",
}


@pytest.mark.parametrize("path", PLACES)
def test_lone_surrogate_or_invalid_utf8_is_refused_in_every_field(place: Probed, path: str) -> None:
    """Input: a lone surrogate in input, tool name, metadata, id; invalid UTF-8. The one policy: 400
    `invalid_unicode`."""
    for bytes_of in NO_CHARACTERS.values():
        place.post(PLACES[path].encode().replace(b"%", bytes_of)).tells(400, "invalid_unicode", path or None)
    assert place.seen == []


def test_surrogate_pair_is_decoded_to_one_character(place: Probed) -> None:
    assert place.post(WHOLE.replace(b"hi", rb"\ud83d\ude00")).status == 200
    assert place.seen[0].json["messages"][0]["content"] == "😀"


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\u2028", "\u0085", "\ufeff", "\ufffe", "\U0010ffff"])
def test_character_reaches_the_upstream_and_returns_unchanged(place: Probed, character: str) -> None:
    """Input: `\\u0000` in text. The test server echoes, so the text comes back as well."""
    text = f"a{character}b"
    for stream in (False, True):
        answer = place.post({**ASKED, "input": text, "metadata": {"k": text}, "stream": stream})
        assert answer.status == 200
        response = _completed(answer) if stream else answer.json
        assert response["metadata"]["k"] == text
        assert text in response["output"][0]["content"][0]["text"]
        assert place.seen[-1].json["messages"][0]["content"] == text


def _completed(answer: Answer) -> Any:
    """The response at the end of a stream."""
    data = next(line for line in answer.body.split(b"\n") if line.startswith(b'data: {"type":"response.completed"'))
    return msgspec.json.decode(data.removeprefix(b"data: "))["response"]


# Size


def test_body_size_limit_is_exact(place: Probed) -> None:
    """Input: body over the limit, with a length."""
    empty = len(msgspec.json.encode({**ASKED, "acme": ""}))
    exact = {**ASKED, "acme": "x" * (MIB - empty)}
    assert place.post(exact).status == 200
    before = len(place.seen)
    place.post({**exact, "acme": exact["acme"] + "x"}).tells(413, "request_too_large")
    assert len(place.seen) == before


POST = [("host", "localhost"), ("content-type", "application/json"), ("connection", "close")]


@pytest.mark.parametrize("length", [str(MIB + 1), "10737418240", "9999999999999999999"])
def test_content_length_over_the_limit_is_refused_before_reading(place: Probed, length: str) -> None:
    """Input: 413 before reading the body; here none of it is ever sent."""
    place.raw(head("POST", "/v1/responses", *POST, ("content-length", length))).tells(413, "request_too_large")
    assert place.seen == []


def test_expect_continue_over_the_limit_is_refused_before_sending(place: Probed) -> None:
    """Input: `Expect: 100-continue`; the refusal is sent instead of `100 Continue`."""
    asked = head("POST", "/v1/responses", *POST, ("expect", "100-continue"), ("content-length", str(MIB + 1)))
    place.raw(asked).tells(413, "request_too_large")


def test_chunked_body_is_refused_once_over_the_limit(place: Probed) -> None:
    """Input: body over the limit, without a length; this one would never end."""
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with place.gateway.connect() as connection:
        connection.sendall(head("POST", "/v1/responses", *POST, ("transfer-encoding", "chunked")))
        _send_without_end(connection, chunk, at_most=64)
        Answer(read_all(connection)).tells(413, "request_too_large")
    assert place.seen == []


def _send_without_end(connection: socket.socket, piece: bytes, at_most: int) -> None:
    """Sends until the other side closes the connection."""
    try:
        for _ in range(at_most):
            connection.sendall(piece)
    except (ConnectionResetError, BrokenPipeError):
        pass


def test_chunked_body_within_the_limit_is_accepted(place: Probed) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in WHOLE) + b"0\r\n\r\n"
    assert place.raw(head("POST", "/v1/responses", *POST, ("transfer-encoding", "chunked")) + chunks).status == 200
    assert place.seen[0].json["messages"][0]["content"] == "hi"


def test_bytes_after_content_length_are_not_part_of_the_body(place: Probed) -> None:
    """Input: lying about the length. The cut JSON is refused, and the rest of it is not a request."""
    answer = place.raw(head("POST", "/v1/responses", *POST[:-1], ("content-length", "10")) + WHOLE)
    answer_to_the_rest = Answer(answer.body[int(answer.headers["content-length"]) :])
    assert (answer.status, answer_to_the_rest.status) == (400, 400)
    answer_to_the_rest.tells(400, "invalid_value")
    assert place.seen == []


def test_body_shorter_than_content_length_makes_no_upstream_call(place: Probed) -> None:
    """Input: lying about the length. No upstream call is made for a body that never arrived."""
    before = len(place.gateway.requests(0))
    with place.gateway.connect() as connection:
        connection.sendall(head("POST", "/v1/responses", *POST, ("content-length", "1000")) + WHOLE)
    line = place.gateway.requests(before + 1)[before]
    assert line["client_left"]
    assert "status" not in line
    assert place.seen == []


def test_file_data_of_32_mib_is_accepted_and_more_is_refused() -> None:
    """Input: exactly 32 MiB of `file_data`; REQ-8: one character more is refused by its path."""
    data = "data:application/pdf;base64,"
    data += "A" * (32 * MIB - len(data))
    with probed(max_body_mib=64) as place:
        assert place.post(_file(data)).status == 200
        assert place.seen[0].body.count(data.encode()) == 1
        place.post(_file(data + "A")).tells(400, "invalid_value", "input[0].content[0].file_data")
        assert len(place.seen) == 1
        place.settle()


def _file(data: str) -> dict[str, Any]:
    return {
        **ASKED,
        "input": [{"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": data}]}],
    }


# Content type and encoding


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity", "gzip, gzip", ""])
def test_content_encoding_is_415(place: Probed, coding: str) -> None:
    """Input: `Content-Encoding` on a request."""
    place.post(WHOLE, ("content-encoding", coding)).tells(415, "unsupported_media_type")
    assert place.seen == []


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "",
    ],
)
def test_other_content_type_is_415(place: Probed, kind: str) -> None:
    """HTTP-1. Input: wrong content type."""
    answer = place.ask("POST", "/v1/responses", ("content-type", kind), body=WHOLE)
    answer.tells(415, "unsupported_media_type")
    assert place.seen == []


def test_missing_content_type_is_415(place: Probed) -> None:
    """HTTP-1."""
    place.ask("POST", "/v1/responses", body=WHOLE).tells(415, "unsupported_media_type")
    assert place.seen == []


# Unknown fields and types

UNKNOWN = {
    "a field": {**ASKED, "acme_field": {"deep": [1, None, "x"]}},
    "a field with a slug": {**ASKED, "acme:field": True},
    "a field of a tool": {**ASKED, "tools": [{"type": "function", "name": "f", "acme_field": 1}]},
    "a tool": {**ASKED, "tools": [{"type": "acme:tool", "size": 3}]},
    "an item": {**ASKED, "input": [{"type": "acme:thing", "acme": 1}, {"role": "user", "content": "hi"}]},
    "a field of an item": {**ASKED, "input": [{"role": "user", "content": "hi", "acme_field": 1}]},
    "a part": {
        **ASKED,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "acme:part", "x": 1}]}],
    },
    "something to include": {**ASKED, "include": ["acme.thing"]},
}


@pytest.mark.parametrize("asked", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_fields_are_passed_through_to_a_responses_server(
    place_before_responses: Probed, asked: dict[str, Any]
) -> None:
    """REQ-7, ITEM-5. Input: unknown fields, unknown item types, `acme:thing`."""
    answer = place_before_responses.post(asked)
    assert answer.status == 200, answer.body
    sent = place_before_responses.seen[0].json
    for field in asked.keys() - {"input"}:
        assert sent[field] == asked[field]
    assert b"acme" in place_before_responses.seen[0].body


@pytest.mark.parametrize("asked", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_fields_are_forwarded_reported_or_refused_before_a_chat_server(
    place: Probed, asked: dict[str, Any]
) -> None:
    """F-4. The same before a server of another API: nothing is lost in silence."""
    answer = place.post(asked)
    if answer.status == 200:
        carried = b"acme" in place.seen[0].body
        assert carried or "antiphon-losses" in answer.headers
    else:
        assert answer.status == 400
        assert answer.error["param"]
        assert place.seen == []


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({**ASKED, "input": [{"type": 5}]}, "input[0].type"),
        ({**ASKED, "input": [{}]}, "input[0].type"),
        ({**ASKED, "input": [None]}, "input[0]"),
        ({**ASKED, "input": {"role": "user"}}, "input"),
        ({**ASKED, "input": [{"role": "robot", "content": "hi"}]}, "input[0].role"),
        ({**ASKED, "input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({**ASKED, "tools": [{"type": "function"}]}, "tools[0].name"),
        ({**ASKED, "metadata": {"a": 1}}, "metadata.a"),
        ({**ASKED, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"input": "hi"}, "model"),
        ({"model": None, "input": "hi"}, "model"),
        ({"model": 7, "input": "hi"}, "model"),
        ({"model": "", "input": "hi"}, "model"),
    ],
)
def test_invalid_value_is_refused_with_its_path(place: Probed, asked: dict[str, Any], param: str) -> None:
    """ERR-3."""
    answer = place.post(asked)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert answer.error["code"] in ("invalid_value", "missing_field")
    assert place.seen == []
