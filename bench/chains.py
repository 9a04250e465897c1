"""Creates requests for turns 10 and 1,000 of one conversation: continued by id, or sent as a whole by the client."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import Any

import msgspec
from bench import payloads
from bench.servers import Server
from bench.workloads import Workload

SHORT_CHAIN, LONG_CHAIN = 10, 1000
MODEL = "mock-n16"
NAMES = ("continued-10", "sent-10", "continued-1000", "sent-1000")


def create_chain(server: Server) -> dict[str, bytes]:
    """Stores a conversation of 1,000 turns in the gateway and returns the request bodies by name.

    A `continued` body has the id of the previous response. A `sent` body contains the whole conversation.
    """
    history: list[dict[str, Any]] = []
    previous_id: str | None = None
    bodies: dict[str, bytes] = {}
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    for turn in range(1, LONG_CHAIN + 1):
        message = {"type": "message", "role": "user", "content": payloads.question(turn)}
        fields = {"model": MODEL, "stream": False}
        continued = {**fields, "input": [message], "previous_response_id": previous_id, "store": True}
        body = payloads.encode_json(continued)
        if turn in (SHORT_CHAIN, LONG_CHAIN):
            bodies[f"continued-{turn}"] = body
            # The stamp makes every request different.
            stamped_message = {**message, "content": f"{payloads.STAMP} {message['content']}"}
            sent = {**fields, "input": [*history, stamped_message], "store": False}
            bodies[f"sent-{turn}"] = payloads.encode_json(sent)
        connection.request("POST", server.target.path, body, headers)
        http_response = connection.getresponse()
        response = msgspec.json.decode(http_response.read())
        if http_response.status != 200:
            raise SystemExit(f"turn {turn} of a chain failed: {response}")
        previous_id = response["id"]
        history += [message, *response["output"]]
    connection.close()
    return bodies


def chain_workload(name: str, body: bytes) -> Workload:
    """Repeats one turn. Each continued request adds a new branch to the stored conversation."""
    requests = 1500 if name.endswith(f"-{SHORT_CHAIN}") else 150
    return Workload(name=name, description="", model=MODEL, stream=False, connections=4, requests=requests, body=body)
