"""Requests to the fake servers: over a socket, with the client of the standard library, and without a socket."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from antiphon.testing.harness import FakeServer
from antiphon.testing.script import PlainReply, ReceivedRequest


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(server: FakeServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> http.client.HTTPResponse:
    """Sends a request and returns when the head of the answer has arrived."""
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    return connection.getresponse()


def send_request(
    server: FakeServer, path: str, body: Any = None, *, method: str = "POST", headers: dict[str, str] | None = None
) -> Answer:
    """Sends a request on a new connection and reads the whole answer."""
    connection = connect(server)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def make_request(body: Any, **headers: str) -> ReceivedRequest:
    """A request as a server receives it. Underscores in the names of headers stand for dashes."""
    all_headers = {
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return ReceivedRequest(
        method="POST",
        path="/",
        headers=all_headers,
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def error_of(reply: PlainReply | None) -> dict[str, Any]:
    """The error in a refusal; empty if the request was not refused."""
    return {} if reply is None else {"status": reply.status, **json.loads(reply.body)["error"]}
