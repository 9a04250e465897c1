"""A conversation of a thousand turns, kept by the gateway: its tenth turn and its last, continued and sent whole."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import Any

import msgspec
from bench import payloads
from bench.servers import Server
from bench.workloads import Workload

SHORT, LONG = 10, 1000
MODEL = "mock-n16"
NAMES = ("continued-10", "sent-10", "continued-1000", "sent-1000")


def bodies(server: Server) -> dict[str, bytes]:
    """What is asked at turns 10 and 1,000: with everything before it sent by the client, and with the id of the turn before."""
    sent: list[dict[str, Any]] = []
    previous: str | None = None
    found: dict[str, bytes] = {}
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    for turn in range(1, LONG + 1):
        asked = {"type": "message", "role": "user", "content": payloads.question(turn)}
        fields = {"model": MODEL, "stream": False}
        body = payloads.encoded({**fields, "input": [asked], "previous_response_id": previous, "store": True})
        if turn in (SHORT, LONG):
            found[f"continued-{turn}"] = body
            new = {**asked, "content": f"{payloads.STAMP} {asked['content']}"}  # so that no two requests are the same
            found[f"sent-{turn}"] = payloads.encoded({**fields, "input": [*sent, new], "store": False})
        connection.request("POST", server.target.path, body, headers)
        answer = connection.getresponse()
        response = msgspec.json.decode(answer.read())
        if answer.status != 200:
            raise SystemExit(f"turn {turn} of a chain failed: {response}")
        previous = response["id"]
        sent += [asked, *response["output"]]
    connection.close()
    return found


def workload(name: str, body: bytes) -> Workload:
    """One of these turns, again and again; what it leads to is another branch each time."""
    requests = 1500 if name.endswith(f"-{SHORT}") else 150
    return Workload(name=name, what="", model=MODEL, stream=False, connections=4, requests=requests, body=body)
