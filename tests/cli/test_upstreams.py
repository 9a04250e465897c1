"""`antiphon upstreams`."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from tests.cli.network import FakeAnswer, FakeNetwork, refusal

from antiphon.cli import upstreams
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed
from antiphon.gateway.route_plan import TargetHealth, UpstreamList

TARGETS = [
    TargetHealth(upstream="lab", model="x", health="healthy", rest_seconds=0.0, attempts=12, failures=0, in_flight=1),
    TargetHealth(upstream="spare", model="y", health="resting", rest_seconds=17.2, attempts=5, failures=5, in_flight=0),
]


def shown(*words: str, targets: list[TargetHealth] = TARGETS) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    network = FakeNetwork(upstreams=FakeAnswer(msgspec.json.encode(UpstreamList(data=targets))))
    args = make_parser().parse_args(["upstreams", *words])
    assert upstreams.run(args, out, err, environ={}, transport=network) == 0
    return out.getvalue(), err.getvalue()


def test_targets_are_shown_in_a_table() -> None:
    assert shown()[0].splitlines() == [
        "UPSTREAM  MODEL  HEALTH        ATTEMPTS  FAILURES  IN FLIGHT",
        "lab       x      healthy       12        0         1",
        "spare     y      resting 17 s  5         5         0",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        FakeAnswer(b'{"object":"list"}'),
        FakeAnswer(b"hello"),
        FakeAnswer(b'{"data":[{"id":"m"}]}'),
        refusal(404, "not_found_error", None, "File Not Found"),
        FakeAnswer(b"404 page not found", status=404),
    ],
)
def test_server_that_is_no_gateway_is_an_error(answer: FakeAnswer) -> None:
    args = make_parser().parse_args(["upstreams", "--url", "http://other:1"])
    with pytest.raises(CommandFailed, match="the server at http://other:1 is not an Antiphon gateway"):
        upstreams.run(args, io.StringIO(), io.StringIO(), environ={}, transport=FakeNetwork(upstreams=answer))


def test_targets_can_be_printed_as_json() -> None:
    assert json.loads(shown("--json")[0])["data"][0]["upstream"] == "lab"


def test_gateway_that_asked_nobody_says_so() -> None:
    assert shown(targets=[]) == ("", "the gateway has asked no upstream yet\n")
