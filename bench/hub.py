"""Measures the hub in one process, as a ratio to msgspec's typed decoding of the same bytes, in interleaved rounds.

    python bench/hub.py [rounds]

Compare only the ratios: absolute times depend on the machine and on its load. Goals: at most 4 × the decoding to decode
and validate a request of 20 KB and translate it to chat; at most 6 × to translate an upstream chunk to SSE bytes.
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
    """One operation, and the decoding that it is compared with."""

    def __init__(self, name: str, run: Callable[[], object], decode: Callable[[], object], repeat: int) -> None:
        self.name, self.run, self.decode, self.repeat = name, run, decode, repeat
        self.times: list[float] = []
        self.decode_times: list[float] = []

    def measure(self) -> None:
        self.decode_times.append(_measure_time(self.decode, self.repeat))
        self.times.append(_measure_time(self.run, self.repeat))

    def report(self) -> str:
        ratios = [time / decode_time for time, decode_time in zip(self.times, self.decode_times, strict=True)]
        goal = GOALS.get(self.name)
        decode_median = statistics.median(self.decode_times)
        return (
            f"{self.name:28} {statistics.median(self.times):8.2f} µs  decode {decode_median:7.2f} µs  "
            f"ratio {statistics.median(ratios):5.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})"
            + (f"  goal ≤ {goal}" if goal else "")
        )


def main(rounds: int = 15) -> None:
    cases = [_request_case(), *_chunk_cases()]
    for _ in range(rounds):
        for case in cases:
            case.measure()
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
    next_delta: dict[str, Any] = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}
    first_delta = {
        "tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "rollback", "arguments": ""}}
        ]
    }
    return [
        _chunk_case("text chunk", {"content": " quick"}, {"content": "The"}),
        _chunk_case("reasoning chunk", {"reasoning_content": " quick"}, {"reasoning_content": "The"}),
        _chunk_case("arguments chunk", next_delta, first_delta),
    ]


def _chunk_case(name: str, delta: dict[str, Any], first_delta: dict[str, Any]) -> Case:
    request = decode_request(payloads.responses_body())
    numbers = iter(range(10**9))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers):048d}", lambda: 0)
    reader = sse.Decoder()
    to_hub = chat.EventsToHub(request, make_initial_response(request, id="resp_" + "0" * 48, created_at=0), stamps)
    policy = Policy.for_request(request)
    from_hub = responses.EventsFromHub(request)
    chunk = payloads.chat_chunk(delta)
    frame = sse.encode_data(chunk)
    decode = msgspec.json.Decoder(Chunk).decode

    def run(data: bytes = frame) -> bytes:
        output = b""
        for item in reader.feed(data):
            for event in to_hub.feed(item):
                for allowed in policy.feed(event) if policy else (event,):
                    output += from_hub.feed(allowed)
        return output

    run(sse.encode_data(payloads.chat_chunk(first_delta)))
    assert run()
    return Case(name, run, lambda: decode(chunk), 3000)


def _measure_time(run: Callable[[], object], repeat: int) -> float:
    """Returns the CPU time of one call in microseconds."""
    start = time.process_time_ns()
    for _ in range(repeat):
        run()
    return (time.process_time_ns() - start) / repeat / 1000


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
