"""What the hub costs in-process, as ratios to msgspec's own typed decoding of the same bytes, in one interleaved run.

    python bench/hub.py [rounds]

Absolute times differ between machines and from minute to minute; only the ratios mean anything. Goals: a request of 20 KB decoded,
validated and translated to chat in at most 4 × its decoding; one upstream chunk in to SSE bytes out in at most 6 × its decoding.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
from bench import payloads

from antiphon import sse
from antiphon.dialects import chat, responses
from antiphon.dialects.chat.response_wire import Chunk
from antiphon.dialects.chat.wire import ChatWire
from antiphon.profiles import load_profile
from antiphon.protocol.codec import decode_request
from antiphon.protocol.policy import Policy
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps

GOALS = {"request": 4.0, "text chunk": 6.0}


class Case:
    """One thing to time, and the decoding it is measured against."""

    def __init__(self, name: str, run: Callable[[], object], base: Callable[[], object], repeat: int) -> None:
        self.name, self.run, self.base, self.repeat = name, run, base, repeat
        self.times: list[float] = []
        self.bases: list[float] = []

    def round(self) -> None:
        self.bases.append(_time(self.base, self.repeat))
        self.times.append(_time(self.run, self.repeat))

    def report(self) -> str:
        ratios = [time / base for time, base in zip(self.times, self.bases, strict=True)]
        goal = GOALS.get(self.name)
        return (
            f"{self.name:28} {statistics.median(self.times):8.2f} µs  decode {statistics.median(self.bases):7.2f} µs  "
            f"ratio {statistics.median(ratios):5.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})"
            + (f"  goal ≤ {goal}" if goal else "")
        )


def main(rounds: int = 15) -> None:
    cases = [_request_case(), *_chunk_cases()]
    for _ in range(rounds):
        for case in cases:
            case.round()
    for case in cases:
        print(case.report())


def _request_case() -> Case:
    body = payloads.responses_body()
    profile = load_profile("chat")
    wire = profile.wire
    assert isinstance(wire, ChatWire)
    decode = msgspec.json.Decoder(Request).decode

    def run() -> object:
        request, _ = profile.apply_quirks(decode_request(body))
        return chat.request_from_hub(request, wire)

    return Case("request", run, lambda: decode(body), 200)


def _chunk_cases() -> list[Case]:
    call: dict[str, Any] = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}
    first_call = {
        "tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "rollback", "arguments": ""}}
        ]
    }
    return [
        _chunk_case("text chunk", {"content": " quick"}, {"content": "The"}),
        _chunk_case("reasoning chunk", {"reasoning_content": " quick"}, {"reasoning_content": "The"}),
        _chunk_case("arguments chunk", call, first_call),
    ]


def _chunk_case(name: str, delta: dict[str, Any], first: dict[str, Any]) -> Case:
    request = decode_request(payloads.responses_body())
    counter = iter(range(10**9))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(counter):048d}", lambda: 0)
    reader = sse.Decoder()
    to_hub = chat.EventsToHub(request, make_initial_response(request, id="resp_" + "0" * 48, created_at=0), stamps)
    policy = Policy.for_request(request)
    from_hub = responses.EventsFromHub(request)
    chunk = payloads.chat_chunk(delta)
    frame = sse.encode_data(chunk)
    decode = msgspec.json.Decoder(Chunk).decode

    def run(data: bytes = frame) -> bytes:
        out = b""
        for item in reader.feed(data):
            for event in to_hub.feed(item):
                for allowed in policy.feed(event) if policy else (event,):
                    out += from_hub.feed(allowed)
        return out

    run(sse.encode_data(payloads.chat_chunk(first)))
    assert run()
    return Case(name, run, lambda: decode(chunk), 3000)


def _time(run: Callable[[], object], repeat: int) -> float:
    begin = time.process_time_ns()
    for _ in range(repeat):
        run()
    return (time.process_time_ns() - begin) / repeat / 1000


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
