"""How these tests ask a server over a socket, with the standard library's own client; and requests without a socket."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from antiphon.testing.harness import FakeServer
from antiphon.testing.script import PlainReply, ReceivedRequest


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(server: FakeServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> http.client.HTTPResponse:
    """Sends a request; its answer has begun when this returns."""
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    return connection.getresponse()


def ask(
    server: FakeServer, path: str, body: Any = None, *, method: str = "POST", headers: dict[str, str] | None = None
) -> Answered:
    """The whole answer, on a connection of its own."""
    connection = connect(server)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def received(body: Any, **headers: str) -> ReceivedRequest:
    """A request as a server gets it. A header's dashes are written as underscores here."""
    given = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return ReceivedRequest(
        method="POST", path="/", headers=given, body=body if isinstance(body, bytes) else json.dumps(body).encode()
    )


def told(reply: PlainReply | None) -> dict[str, Any]:
    """The error inside a refusal; empty where nothing was refused."""
    return {} if reply is None else {"status": reply.status, **json.loads(reply.body)["error"]}
