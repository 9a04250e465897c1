"""Creates the requests of the soak test, two thirds healthy and one third with a fault, with checks of the answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
from soak.client import Answer, Disconnect, SoakRequest
from tests.fuzz import corpus
from tests.fuzz.mutate import damaged_json

KEY: Final = "soak-key-0123456789"


def random_request(rng: Random) -> SoakRequest:
    """Returns a random request."""
    factories = HEALTHY if rng.random() < 2 / 3 else FAULTY
    return rng.choice(factories)(rng)


def new_agent_request(rng: Random, number: int) -> SoakRequest:
    """Returns a request of a coding agent with its own model and tools; every second one has a damaged body.

    Enough of these requests fill every bounded cache of the gateway.
    """
    first_tool, *other_tools = CODEX["tools"]
    tools = [{**first_tool, "description": f"The first tool of {number}."}, *other_tools]
    body = msgspec.json.encode({**CODEX, "model": f"soak-text-{number}", "tools": tools, "stream": number % 3 > 0})
    body = damaged_json(body, rng) if number % 2 else body
    return SoakRequest(kind="new agent", head=_head(len(body)), body=body, is_expected=_is_answered_or_refused)


# Healthy requests


def _streamed_text(rng: Random) -> SoakRequest:
    del rng
    return _turn("stream", "soak-text", _is_completed, stream=True)


def _unstreamed_text(rng: Random) -> SoakRequest:
    del rng
    return _turn("not streamed", "soak-text", _is_completed)


def _agent_turn(rng: Random) -> SoakRequest:
    """Returns a turn of a coding agent with 40 KB and ten tools."""
    body = msgspec.json.encode({**CODEX, "model": "soak-tools", "stream": rng.random() < 0.8})
    return SoakRequest(kind="agent", head=_head(len(body)), body=body, is_expected=_is_completed)


# Requests with a fault


def _upstream_breaks_off(rng: Random) -> SoakRequest:
    """The upstream fails after the start of its answer: an error in the stream, or a status if it is not streamed."""
    model = rng.choice(("soak-fin", "soak-rst", "soak-cut", "soak-error-inside"))
    stream = model == "soak-error-inside" or rng.random() < 0.7  # an error inside a stream needs one
    return _turn(model, model, _is_upstream_failure, stream=stream)


def _upstream_fails(rng: Random) -> SoakRequest:
    """The upstream fails before its answer: an error status."""
    model = rng.choice(("soak-nothing", "soak-garbage", "soak-html", "soak-500", "soak-429", "soak-refused"))
    status = 429 if model == "soak-429" else 502
    return _turn(model, model, lambda answer: answer.status == status and _is_error(answer), stream=rng.random() < 0.5)


def _upstream_hangs(rng: Random) -> SoakRequest:
    model = rng.choice(("soak-hang", "soak-silent"))
    return _turn(model, model, _is_timeout, stream=rng.random() < 0.7)


def _upstream_is_slow(rng: Random) -> SoakRequest:
    return _turn("slow upstream", "soak-slow", _is_completed, stream=rng.random() < 0.7)


def _client_is_slow(rng: Random) -> SoakRequest:
    del rng
    return msgspec.structs.replace(_turn("slow client", "soak-text", _is_completed, stream=True), is_slow=True)


def _client_disconnects(rng: Random) -> SoakRequest:
    model = rng.choice(("soak-text", "soak-slow", "soak-hang"))
    request = _turn("client disconnects", model, lambda _: True, stream=rng.random() < 0.7)
    disconnect = rng.choice(DISCONNECTS)
    return msgspec.structs.replace(request, disconnect=disconnect, resets=rng.random() < 0.5)


def _bad_body(rng: Random) -> SoakRequest:
    """Half of them are bodies of real clients with damage, which may still be valid."""
    if rng.random() < 0.5:
        body = rng.choice(
            (b"", b"null", b"[]", b'{"model":', b'{"model":"soak-text","input":3}', b'{"input":"Hi"}', b"\xff{}")
        )
        return SoakRequest(kind="bad body", head=_head(len(body)), body=body, is_expected=_is_refused)
    body = damaged_json(rng.choice(list(corpus.BODIES.values())), rng).replace(b'"mock-1"', b'"soak-text"')
    return SoakRequest(kind="damaged body", head=_head(len(body)), body=body, is_expected=_is_answered_or_refused)


def _bad_head(rng: Random) -> SoakRequest:
    head = rng.choice(
        (
            b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer soak-key-0123456789\r\n\r\n",
            b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n"
            b"content-length: 0\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
            b"GET /health HTTP/1.1\r\nbad header\r\n\r\n",
            b"\x16\x03\x01\x00\x00\r\n\r\n",
        )
    )
    return SoakRequest(kind="bad head", head=head, body=b"", is_expected=_is_refused)


# Checks of answers


def _is_completed(answer: Answer) -> bool:
    return answer.status == 200 and (b'"status":"completed"' in answer.body[-20_000:])


def _is_refused(answer: Answer) -> bool:
    return 400 <= answer.status < 500 and _is_error(answer)


def _is_answered_or_refused(answer: Answer) -> bool:
    return answer.status == 200 or _is_refused(answer)


def _is_upstream_failure(answer: Answer) -> bool:
    if answer.status == 200:
        return answer.body.count(b"event: response.failed\n") == 1 and answer.body.endswith(b"data: [DONE]\n\n")
    return answer.status == 502 and _is_error(answer)


def _is_timeout(answer: Answer) -> bool:
    if answer.status == 200:
        return b'"code":"upstream_timeout"' in answer.body and answer.body.endswith(b"data: [DONE]\n\n")
    return answer.status == 504 and _is_error(answer)


def _is_error(answer: Answer) -> bool:
    return b'"internal_error"' not in answer.body and set(msgspec.json.decode(answer.body)) == {"error"}


def _turn(kind: str, model: str, is_expected: Callable[[Answer], bool], *, stream: bool = False) -> SoakRequest:
    body = msgspec.json.encode({"model": model, "input": "Say twenty words.", "stream": stream})
    return SoakRequest(kind=kind, head=_head(len(body)), body=body, is_expected=is_expected)


def _head(length: int) -> bytes:
    return (
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n" % (KEY.encode(), length)
    )


CODEX: Final = msgspec.json.decode(corpus.BODIES["codex"])
DISCONNECTS: Final[tuple[Disconnect, ...]] = ("before the answer", "during the answer")
RequestFactory = Callable[[Random], SoakRequest]
# A factory that occurs several times is chosen more often.
HEALTHY: Final[list[RequestFactory]] = [
    *(_streamed_text, _streamed_text, _streamed_text, _unstreamed_text, _unstreamed_text, _agent_turn),
]
FAULTY: Final[list[RequestFactory]] = [
    *(_upstream_breaks_off, _upstream_breaks_off, _upstream_fails, _upstream_fails),
    *(_upstream_hangs, _upstream_is_slow, _client_is_slow, _client_disconnects, _client_disconnects),
    *(_bad_body, _bad_body, _bad_head),
]
