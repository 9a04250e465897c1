from __future__ import annotations

import itertools
import json

import pytest
from tests.testing.requests import connect, post, send_request

from antiphon.testing import SSE_HEAD, Reply, faults
from antiphon.testing.fixtures import StartChatServer
from antiphon.testing.script import Pause, RawReply

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def steps_of(reply: RawReply, count: int) -> list[object]:
    return list(itertools.islice(reply.steps, count))


def test_a_drip_is_the_answer_byte_by_byte(start_chat_server: StartChatServer) -> None:
    server = start_chat_server([faults.drip(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")])
    assert send_request(server, PATH, BODY).body == b"ok"
    assert steps_of(faults.drip(b"ab"), 9) == [b"a", b"b"]
    assert steps_of(faults.drip(b"ab", 0.5), 9) == [b"a", Pause(0.5), b"b", Pause(0.5)]


def test_an_endless_answer_goes_on_until_the_client_leaves(start_chat_server: StartChatServer) -> None:
    server = start_chat_server([faults.endless(b": ping\n\n", seconds=0.001)])
    connection = connect(server)
    answer = post(connection, PATH, BODY)
    assert answer.read(40) == b": ping\n\n" * 5
    answer.close()
    connection.close()
    server.wait_disconnected()
    assert steps_of(faults.endless(b"x", before=b"y", seconds=0.2), 3) == [b"y", b"x", Pause(0.2)]


@pytest.mark.parametrize("size", [1, 256 * 1024, 300_000])
def test_a_gigantic_line_has_the_size_that_was_asked_for_and_no_end(size: int) -> None:
    said = b"".join(step for step in faults.gigantic_line(size).steps if isinstance(step, bytes))
    assert said == SSE_HEAD + b"data: " + b"x" * size


@pytest.mark.parametrize(
    ("reply", "status", "header", "value"),
    [
        (faults.redirect("http://elsewhere.example/"), 307, "location", "http://elsewhere.example/"),
        (faults.redirect("/other", 301), 301, "location", "/other"),
        (faults.page(), 200, "content-type", "text/html; charset=utf-8"),
        (faults.page(502), 502, "content-type", "text/html; charset=utf-8"),
    ],
)
def test_answers_that_are_for_somebody_else(
    reply: Reply, status: int, header: str, value: str, start_chat_server: StartChatServer
) -> None:
    answer = send_request(start_chat_server([reply]), PATH, BODY)
    assert (answer.status, answer.headers[header]) == (status, value)
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.body)
