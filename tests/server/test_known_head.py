"""`server/known_head`: a head that comes again is the same request with another body, and nothing that differs is taken for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.test_http_protocol import Place, serving, until

from antiphon.server.asgi import BY_NAME, DIRECT, FACTS, values_of
from antiphon.server.known_head import KnownHead

HEAD = b"POST /v1/responses?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\nAuthorization: Bearer k\r\n\r\n"
SCOPE: dict[str, Any] = {
    "type": "http",
    "path": "/v1/responses",
    "state": {},
    "headers": [(b"host", b"a"), (b"content-length", b"2"), (b"authorization", b"Bearer k")],
}


def known(head: bytes = HEAD, **changes: Any) -> KnownHead | None:
    return KnownHead.of(head % b"2" + b"{}", {**SCOPE, **changes})


@given(body=st.binary(max_size=300))
def test_another_body_is_found_whole(body: bytes) -> None:
    head = known()
    assert head is not None
    found = head.split(HEAD % b"%d" % len(body) + body)
    assert found is not None
    assert (found.body, int(found.length)) == (body, len(body))
    scope = head.scope(found.length, {"own": 1})
    assert values_of(scope, b"content-length") == [b"%d" % len(body)]
    assert values_of(scope, b"host") == [b"a"]
    assert (b"content-length", b"%d" % len(body)) in scope["headers"]
    assert scope["state"] == {"own": 1}
    assert scope["headers"] is not head.scope(found.length, {})["headers"]
    assert scope[FACTS] is head.scope(b"7", {})[FACTS]


@given(data=st.data())
def test_nothing_that_differs_is_taken_for_it(data: st.DataObject) -> None:
    """But for the digits: one byte more or less, or another one, anywhere in the head."""
    head = known()
    assert head is not None
    whole = HEAD % b"12" + b"x" * 12
    at = data.draw(st.integers(0, len(whole) - 13))
    piece = data.draw(st.binary(max_size=2) | st.sampled_from([b"\r\n", b" ", b"\t", b"+", b"-", b"_", b"0x"]))
    damaged = whole[:at] + piece + whole[at + data.draw(st.integers(0, 2)) :]
    found = head.split(damaged)
    if found is not None:
        assert found.length.isdigit()
        assert damaged == HEAD % found.length + found.body
        assert len(found.body) == int(found.length)


@pytest.mark.parametrize(
    "length",
    [b"", b"-2", b"+2", b"2 ", b" 2", b"2,2", b"0x2", b"1_2", "\u0662".encode(), b"2\r\nContent-Length: 2", b"00000000002"],
)
def test_a_length_is_digits_and_few(length: bytes) -> None:
    head = known()
    assert head is not None
    assert head.split(HEAD % length + b"{}") is None


@pytest.mark.parametrize("rest", [b"{", b"{}{", b"{}" + HEAD % b"2" + b"{}"])
def test_a_request_that_is_not_here_to_its_last_byte_or_not_alone_is_for_the_parser(rest: bytes) -> None:
    head = known()
    assert head is not None
    assert head.split(HEAD % b"2" + rest) is None


@pytest.mark.parametrize("name", [b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"])
def test_heads_that_ask_for_more_are_never_known(name: bytes) -> None:
    assert known(headers=[*SCOPE["headers"], (name, b"x")]) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"a")],
        [*SCOPE["headers"], (b"content-length", b"2")],
    ],
)
def test_a_head_has_one_length(headers: list[tuple[bytes, bytes]]) -> None:
    assert known(headers=headers) is None
    assert KnownHead.of(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", {**SCOPE, "headers": headers}) is None


def test_what_came_is_one_request() -> None:
    assert KnownHead.of(HEAD % b"2" + b"{}{", SCOPE) is None
    assert KnownHead.of(HEAD % b"2" + b"{", SCOPE) is None


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with serving() as place:
        yield place


# What clients send on one connection: lines of heads, and bodies.
LINES = [b"", b"x-a: 1\r\n", b"x-a: 2\r\n", b"expect: 100-continue\r\n", b"x-a: 1\r\nx-a: 1\r\n", b"te: trailers\r\n"]
REQUESTS = st.lists(
    st.tuples(st.sampled_from([b"/one", b"/two?q=%20"]), st.sampled_from([*LINES[:2] * 3, *LINES]), st.integers(0, 40)), max_size=8
)


@given(asked=REQUESTS)
def test_on_one_connection_requests_are_what_they_are_each_by_itself(place: Place, asked: list[tuple[bytes, bytes, int]]) -> None:
    """The same requests in one piece each, which may be known, and in two, which never are."""
    seen = [_seen(place, asked, in_pieces=in_pieces) for in_pieces in (False, True)]
    assert seen[0] == seen[1]
    assert len(seen[0]) == len(asked)


def test_a_head_that_came_before_is_not_parsed_again(place: Place) -> None:
    request = b"POST /again HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b"
    place.app.seen.clear()
    with place.client() as client:
        for body in (b"{}", b"[1,2,3]", b""):
            client.sendall(request % (len(body), body))
            assert b'"length": %d' % len(body) in answer_on(client)
        client.sendall(request.replace(b"again", b"other") % (2, b"{}"))
        answer_on(client)
    assert [FACTS in scope for scope in place.app.seen] == [False, True, True, False]


def test_who_never_sends_a_head_twice_is_soon_not_waited_for(place: Place) -> None:
    place.app.seen.clear()
    with place.client() as client:
        for number in [*range(6), 5]:
            client.sendall(b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}" % number)
            answer_on(client)
    assert not any(FACTS in scope for scope in place.app.seen)


def _seen(place: Place, asked: list[tuple[bytes, bytes, int]], *, in_pieces: bool) -> list[Any]:
    place.app.seen.clear()
    told = []
    with place.client() as client:
        for path, lines, length in asked:
            data = b"POST %b HTTP/1.1\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n" % (path, lines, length) + b"x" * length
            if in_pieces:
                client.sendall(data[:20])
                until(lambda: place.connection()._taken > 0)
                client.sendall(data[20:])
            else:
                client.sendall(data)
            told.append(answer_on(client))
    until(lambda: place.protocols() == 0)
    own = (FACTS, BY_NAME, DIRECT, "client")
    return [
        ({name: value for name, value in scope.items() if name not in own}, told[at]) for at, scope in enumerate(place.app.seen)
    ]


def answer_on(client: socket.socket) -> bytes:
    """The body of the next answer, which is JSON."""
    data = b""
    while b"\r\n\r\n{" not in data:
        data += client.recv(65536)
    head, _, body = data.rpartition(b"\r\n\r\n")
    length = int(head.lower().rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(65536)
    return body
