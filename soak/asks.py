"""The requests of the soak: two thirds are healthy, one third is not, each with what is right for an answer to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
from soak.client import Answer, Ask
from tests.fuzz import corpus
from tests.fuzz.mutate import damaged_json

KEY: Final = "soak-key-0123456789"


def ask(chance: Random) -> Ask:
    """The next request."""
    kinds = HEALTHY if chance.random() < 2 / 3 else FAULTY
    return chance.choice(kinds)(chance)


def newcomer(chance: Random, number: int) -> Ask:
    """A coding agent of its own with tools and a model of its own, and every other one with damage: whatever a gateway remembers up
    to a bound is full once enough of them came."""
    first, *others = CODEX["tools"]
    tools = [{**first, "description": f"The first tool of {number}."}, *others]
    body = msgspec.json.encode({**CODEX, "model": f"soak-text-{number}", "tools": tools, "stream": number % 3 > 0})
    body = damaged_json(body, chance) if number % 2 else body
    return Ask(kind="newcomer", head=_head(len(body)), body=body, is_right=_answered_or_refused)


# Healthy ones


def _text_streamed(chance: Random) -> Ask:
    del chance
    return _turn("stream", "soak-text", _completed, stream=True)


def _text_whole(chance: Random) -> Ask:
    del chance
    return _turn("whole", "soak-text", _completed)


def _agent(chance: Random) -> Ask:
    """A coding agent's turn: forty kilobytes, ten tools."""
    body = msgspec.json.encode({**CODEX, "model": "soak-tools", "stream": chance.random() < 0.8})
    return Ask(kind="agent", head=_head(len(body)), body=body, is_right=_completed)


# Faulty ones


def _upstream_dies(chance: Random) -> Ask:
    """After it began to answer: told in the stream, or as a status to a client that wants none."""
    model = chance.choice(("soak-fin", "soak-rst", "soak-cut", "soak-error-inside"))
    stream = model == "soak-error-inside" or chance.random() < 0.7  # an error inside a stream needs one
    return _turn(model, model, _failed_for_the_upstream, stream=stream)


def _upstream_fails(chance: Random) -> Ask:
    """Before it began: a status."""
    model = chance.choice(("soak-nothing", "soak-garbage", "soak-html", "soak-500", "soak-429", "soak-refused"))
    wanted = 429 if model == "soak-429" else 502
    return _turn(
        model, model, lambda answer: answer.status == wanted and _is_error(answer), stream=chance.random() < 0.5
    )


def _upstream_hangs(chance: Random) -> Ask:
    model = chance.choice(("soak-hang", "soak-silent"))
    return _turn(model, model, _timed_out, stream=chance.random() < 0.7)


def _upstream_is_slow(chance: Random) -> Ask:
    return _turn("slow upstream", "soak-slow", _completed, stream=chance.random() < 0.7)


def _client_is_slow(chance: Random) -> Ask:
    del chance
    return msgspec.structs.replace(_turn("slow client", "soak-text", _completed, stream=True), slowly=True)


def _client_leaves(chance: Random) -> Ask:
    model = chance.choice(("soak-text", "soak-slow", "soak-hang"))
    asked = _turn("client leaves", model, _anything, stream=chance.random() < 0.7)
    when = chance.choice(("at once", "in the middle"))
    return msgspec.structs.replace(asked, leaves=when, resets=chance.random() < 0.5)


def _bad_body(chance: Random) -> Ask:
    """Every other is a real client's body with damage in it; it may still be a good one."""
    if chance.random() < 0.5:
        body = chance.choice(
            (b"", b"null", b"[]", b'{"model":', b'{"model":"soak-text","input":3}', b'{"input":"Hi"}', b"\xff{}")
        )
        return Ask(kind="bad body", head=_head(len(body)), body=body, is_right=_refused)
    body = damaged_json(chance.choice(list(corpus.BODIES.values())), chance).replace(b'"mock-1"', b'"soak-text"')
    return Ask(kind="damaged body", head=_head(len(body)), body=body, is_right=_answered_or_refused)


def _bad_head(chance: Random) -> Ask:
    head = chance.choice(
        (
            b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer soak-key-0123456789\r\n\r\n",
            b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\ncontent-length: 0\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
            b"GET /health HTTP/1.1\r\nbad header\r\n\r\n",
            b"\x16\x03\x01\x00\x00\r\n\r\n",
        )
    )
    return Ask(kind="bad head", head=head, body=b"", is_right=_refused)


# What is right


def _anything(answer: Answer) -> bool:
    del answer
    return True


def _completed(answer: Answer) -> bool:
    return answer.status == 200 and (b'"status":"completed"' in answer.body[-20_000:])


def _refused(answer: Answer) -> bool:
    return 400 <= answer.status < 500 and _is_error(answer)


def _answered_or_refused(answer: Answer) -> bool:
    return answer.status == 200 or _refused(answer)


def _failed_for_the_upstream(answer: Answer) -> bool:
    if answer.status == 200:
        return answer.body.count(b"event: response.failed\n") == 1 and answer.body.endswith(b"data: [DONE]\n\n")
    return answer.status == 502 and _is_error(answer)


def _timed_out(answer: Answer) -> bool:
    if answer.status == 200:
        return b'"code":"upstream_timeout"' in answer.body and answer.body.endswith(b"data: [DONE]\n\n")
    return answer.status == 504 and _is_error(answer)


def _is_error(answer: Answer) -> bool:
    return b'"internal_error"' not in answer.body and set(msgspec.json.decode(answer.body)) == {"error"}


def _turn(kind: str, model: str, is_right: Callable[[Answer], bool], *, stream: bool = False) -> Ask:
    body = msgspec.json.encode({"model": model, "input": "Say twenty words.", "stream": stream})
    return Ask(kind=kind, head=_head(len(body)), body=body, is_right=is_right)


def _head(length: int) -> bytes:
    return (
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer %b\r\n"
        b"content-length: %d\r\n\r\n" % (KEY.encode(), length)
    )


CODEX: Final = msgspec.json.decode(corpus.BODIES["codex"])
Kind = Callable[[Random], Ask]
HEALTHY: Final[list[Kind]] = [_text_streamed, _text_streamed, _text_streamed, _text_whole, _text_whole, _agent]
FAULTY: Final[list[Kind]] = [
    *(_upstream_dies, _upstream_dies, _upstream_fails, _upstream_fails, _upstream_hangs, _upstream_is_slow),
    *(_client_is_slow, _client_leaves, _client_leaves, _bad_body, _bad_body, _bad_head),
]
