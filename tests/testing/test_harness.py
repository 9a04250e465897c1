from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.testing.requests import connect, post, send_request

from antiphon.testing import (
    SSE_HEAD,
    ChatServer,
    Gate,
    ReceivedRequest,
    Reply,
    end,
    error,
    exactly,
    head,
    pause,
    raw,
    text,
    turn,
    wait,
    whole,
)
from antiphon.testing.harness import ScriptEnded
from antiphon.testing.script import RawReply, Step

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
PATH = "/v1/chat/completions"


def body(**settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **settings}


def raw_answer(server: ChatServer, sent: bytes) -> bytes:
    """All that comes back for these bytes until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_turns_are_answered_in_their_order_and_what_came_is_kept() -> None:
    with ChatServer([turn(text("one")), whole({"two": 2}, headers={"x-two": "2"})]) as server:
        first = send_request(server, PATH, body(user="a"), headers={"x-one": "1"})
        second = send_request(server, PATH, body(user="b"))
    assert first.json["choices"][0]["message"]["content"] == "one"
    assert second.json == {"two": 2}
    assert second.headers["x-two"] == "2"
    assert [(got.method, got.path, got.json["user"]) for got in server.received] == [
        ("POST", PATH, "a"),
        ("POST", PATH, "b"),
    ]
    assert server.received[0].headers["x-one"] == "1"
    assert server.refusals == []


def test_a_script_can_be_a_function_of_the_request() -> None:
    def script(received: ReceivedRequest) -> Reply:
        return (
            error(429, "slow down", code="rate_limit_exceeded", headers={"retry-after": "7"})
            if received.json["user"]
            else turn()
        )

    with ChatServer(script) as server:
        answer = send_request(server, PATH, body(user="me"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert answer.json["error"]["code"] == "rate_limit_exceeded"


def test_a_request_too_many_is_an_error_for_the_client_and_for_the_test() -> None:
    server = ChatServer([]).start()
    assert send_request(server, PATH, body()).status == 500
    with pytest.raises(ScriptEnded, match="0 replies"):
        server.__exit__(None, None, None)


def test_an_error_of_the_test_itself_is_not_hidden_by_one_of_the_script() -> None:
    server = ChatServer([]).start()
    send_request(server, PATH, body())
    raised = KeyError("of the test")
    server.__exit__(KeyError, raised, None)  # does not raise: the other error goes on by itself
    assert raised.__notes__ == [
        "the script of the server failed too: ScriptEnded('the script has 0 replies, and one more request came')"
    ]


def test_a_script_that_raises_midway_ends_the_connection_and_fails_the_test() -> None:
    def steps() -> Iterator[Step]:
        yield SSE_HEAD
        raise ValueError("in the script")

    server = ChatServer([RawReply(steps=steps())]).start()
    with pytest.raises(ConnectionResetError):
        send_request(server, PATH, body())
    with pytest.raises(ValueError, match="in the script"):
        server.__exit__(None, None, None)


def test_script_that_raises_at_once_is_an_error_for_the_client_and_for_the_test() -> None:
    def script(_: ReceivedRequest) -> Reply:
        raise ValueError("in the script")

    server = ChatServer(script).start()
    answer = send_request(server, PATH, body())
    assert (answer.status, answer.headers["connection"]) == (500, "close")
    assert "in the script" in answer.json["error"]["message"]
    server.wait_closed()
    assert (server.in_flight, server.abandoned) == (0, 0)
    with pytest.raises(ValueError, match="in the script"):
        server.__exit__(None, None, None)


def test_the_request_decides_about_the_stream_unless_the_script_does() -> None:
    with ChatServer(
        [turn(text("a")), turn(text("a")), turn(text("a"), stream=True), turn(text("a"), stream=False)]
    ) as server:
        answers = [send_request(server, PATH, body(stream=stream)) for stream in (True, False, False, True)]
    streamed, plain = "text/event-stream", "application/json"
    assert [answer.headers["content-type"] for answer in answers] == [streamed, plain, streamed, plain]


def test_a_connection_is_kept_and_requests_on_it_are_answered_one_after_another() -> None:
    with ChatServer() as server:
        connection = connect(server)
        for _ in range(3):
            assert post(connection, PATH, body(stream=True)).read().endswith(b"data: [DONE]\n\n")
        server.wait_idle()
        assert (server.open_connections, server.in_flight) == (1, 0)
        connection.close()
        server.wait_closed()
    assert len(server.received) == 3
    assert server.abandoned == 0


def test_requests_that_come_in_one_piece_are_answered_in_order() -> None:
    def request(user: str, *more: str) -> bytes:
        data = json.dumps(body(user=user)).encode()
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "content-type: application/json", *more]
        return "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode() + data

    with ChatServer([turn(text("1")), turn(text("2"))]) as server:
        answer = raw_answer(server, request("a", "X-Twice: 1", "x-twice: 2") + request("b", "connection: close"))
    assert answer.index(b'"content":"1"') < answer.index(b'"content":"2"')
    assert server.received[0].headers["x-twice"] == "1, 2"


def test_harness_refuses_invalid_http_and_closes() -> None:
    with ChatServer() as server:
        assert raw_answer(server, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_models_are_listed_and_other_places_are_errors() -> None:
    with ChatServer(models=["a", "b"]) as server:
        listed = send_request(server, "/v1/models", method="GET")
        assert [model["id"] for model in listed.json["data"]] == ["a", "b"]
        assert send_request(server, PATH, method="GET").json["error"]["code"] == "method_not_allowed"
        assert send_request(server, "/v1/chat", body()).status == 404
        assert send_request(server, f"{PATH}?a=b", body(model="a")).status == 200


def test_a_gate_holds_the_stream_until_it_is_opened() -> None:
    gate = Gate()
    with ChatServer([turn(text("a"), wait(gate), text("b"))]) as server:
        connection = connect(server)
        answer = post(connection, PATH, body(stream=True))
        gate.wait_reached()
        assert b'"content":"a"' in answer.readline() + answer.readline() + answer.readline()
        assert server.in_flight == 1
        gate.open()
        assert b'"content":"b"' in answer.read()
        connection.close()
    with ChatServer([turn(wait(gate), text("c"))]) as server:  # an open gate holds nobody
        assert send_request(server, PATH, body()).json["choices"][0]["message"]["content"] == "c"


def test_status_and_headers_go_out_with_the_first_words_or_when_they_are_told_to() -> None:
    gate = Gate()
    with ChatServer([turn(head(), wait(gate), text("a")), turn(wait(gate), text("a"))]) as server:
        connection = connect(server)
        answer = post(connection, PATH, body(stream=True))  # returns, though nothing was said
        assert answer.status == 200
        answer.close()
        connection.close()
        gate.open()
        assert send_request(server, PATH, body(stream=True)).status == 200


def test_a_pause_passes_and_raw_bytes_stand_between_the_frames() -> None:
    with ChatServer([turn(raw(b": ping\n\n"), pause(0.001), text("a"))]) as server:
        assert send_request(server, PATH, body(stream=True)).body.startswith(b": ping\n\ndata: {")


def test_nobody_at_the_gate_is_told_so() -> None:
    with pytest.raises(TimeoutError, match="no server came"):
        Gate().wait_reached(0.001)


def test_a_client_that_leaves_is_noticed_while_the_server_waits() -> None:
    gate = Gate()
    with ChatServer([turn(text("a"), wait(gate))]) as server:
        connection = connect(server)
        answer = post(connection, PATH, body(stream=True))
        gate.wait_reached()
        answer.close()
        connection.close()
        server.wait_disconnected(1)
        server.wait_closed()
        assert (server.abandoned, server.in_flight, server.open_connections) == (1, 0, 0)
        gate.open()


def test_a_client_that_leaves_an_endless_stream_is_noticed() -> None:
    def endless() -> Iterator[Step]:
        yield SSE_HEAD
        while True:
            yield b": ping\n\n"

    with ChatServer([RawReply(steps=endless())]) as server:
        connection = connect(server)
        answer = post(connection, PATH, body(stream=True))
        assert answer.read(18) == b": ping\n\n: ping\n\n: "
        answer.close()
        connection.close()
        server.wait_disconnected()


def test_waiting_in_vain_says_how_things_stand() -> None:
    with ChatServer() as server:
        send_request(server, PATH, body())
        server.wait_received(1)
        with pytest.raises(TimeoutError, match=r"waited 0\.001 s for 1 clients to disconnect: 1 requests received"):
            server.wait_disconnected(timeout=0.001)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", ["fin", "mid-chunk"])
def test_an_answer_can_break_off_with_a_plain_end(how: Any, stream: bool) -> None:
    with ChatServer([turn(text("a"), end(how), text("b"))]) as server:
        with pytest.raises(http.client.IncompleteRead) as cut:
            send_request(server, PATH, body(stream=stream))
        server.wait_closed()
    assert b'"content":"b"' not in cut.value.partial
    assert server.abandoned == 0


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_can_break_off_with_a_reset(stream: bool) -> None:
    with ChatServer([turn(text("a"), end("rst"))]) as server, pytest.raises(ConnectionResetError):
        send_request(server, PATH, body(stream=stream))


def test_harness_delivers_all_bytes_before_the_end_to_slow_readers() -> None:
    data = b"x" * 16 * 1024 * 1024  # more than the kernel takes at once
    with ChatServer([exactly(SSE_HEAD, data, end("fin"))]) as server:
        assert send_request(server, PATH, body()).body == data


def test_a_server_that_hangs_is_ended_by_the_client_or_by_its_own_stop() -> None:
    with ChatServer([turn(end("hang")), turn(text("a"), end("hang"))]) as server:
        connection = connect(server)
        connection.request("POST", PATH, json.dumps(body()), {"content-type": "application/json"})
        server.wait_received(1)
        connection.close()
        server.wait_disconnected(1)
        connection = connect(server)
        answer = post(connection, PATH, body(stream=True))
        server.stop()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        connection.close()
    assert server.abandoned == 1


def test_an_answer_can_be_given_to_the_letter() -> None:
    answer = b"HTTP/1.1 299 Odd\r\ncontent-length: 2\r\n\r\n"
    with ChatServer(
        [exactly(answer, b"o", pause(0), b"k"), exactly(b"HTTP/1.1 200 OK\r\n\r\nuntil", end("fin"))]
    ) as server:
        assert (send_request(server, PATH, body()).status, send_request(server, PATH, body()).body) == (299, b"until")


def test_a_status_without_a_name_is_sent_all_the_same() -> None:
    with ChatServer([error(529, "overloaded", type="overloaded_error")]) as server:
        assert send_request(server, PATH, body()).status == 529


def test_a_port_in_use_is_told_at_once() -> None:
    with ChatServer() as server, pytest.raises(OSError, match="in use"):
        ChatServer(port=server.port).start()


def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    ChatServer().stop()
    server = ChatServer().start()
    server.stop()
    server.stop()


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with ChatServer([turn(end("hang"))]) as server:
        connection = connect(server)
        connection.request("POST", PATH, json.dumps(body()), {"content-type": "application/json"})
        server.wait_received(1)
    assert server.open_connections == 0
    assert server.in_flight == 0
    assert threading.active_count() == before
    connection.close()


def test_it_works_inside_an_event_loop_too() -> None:
    async def scenario() -> int:
        async with ChatServer() as server:
            return (await asyncio.to_thread(send_request, server, PATH, body())).status

    assert asyncio.run(scenario()) == 200


def test_a_body_that_is_no_json_is_seen_as_none() -> None:
    with ChatServer() as server:
        assert send_request(server, PATH, b"{").status == 400
    assert server.received[0].json is None
    assert len(server.refusals) == 1
