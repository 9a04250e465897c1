"""`antiphon route explain`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.network import FakeAnswer, FakeNetwork

from antiphon.cli import route
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.gateway.route_plan import PlannedTarget, RoutePlan
from antiphon.protocol.losses import Loss

FIRST = PlannedTarget(
    upstream="a",
    model="x",
    why=["priority 1, drawn with weight 3 of 4"],
    losses=[Loss("top_logprobs", "3", "the API lacks it")],
    health="healthy",
    keys=2,
    resting_keys=1,
)
SECOND = PlannedTarget(
    upstream="b", model="y", why=["priority 2"], losses=[], error="too strict", health="resting", keys=1, resting_keys=0
)
PLAN = RoutePlan(
    model="coder",
    strategy="weighted",
    rounds=2,
    deadline=120.0,
    targets=[FIRST, SECOND],
    on_context_length=["long/z"],
    on_refusal=[],
    not_offered=[Loss("provider.order", "the provider 'c'", "the model has no such target")],
)


def explain(*words: str, stdin: str = "") -> tuple[str, FakeNetwork]:
    out = io.StringIO()
    args = make_parser().parse_args(["route", "explain", *words])
    path = f"route?dialect={args.dialect}" + (f"&model={args.model}" if args.model else "")
    network = FakeNetwork(**{path: FakeAnswer(msgspec.json.encode(PLAN))})
    assert route.run(args, out, io.StringIO(), environ={}, transport=network, stdin=io.StringIO(stdin)) == 0
    return out.getvalue(), network


def test_plan_is_printed_line_by_line() -> None:
    out, network = explain("--model", "coder")
    assert out.splitlines() == [
        "coder: weighted, 2 rounds, attempts begin within 120 s",
        "1. a/x: priority 1, drawn with weight 3 of 4 (healthy, 2 keys, 1 resting)",
        "   loses top_logprobs: 3 (the API lacks it)",
        "2. b/y: priority 2 (resting)",
        "   cannot be asked: too strict",
        "on context length: long/z",
        "not offered: provider.order: the provider 'c' (the model has no such target)",
    ]
    assert json.loads(network.sent[0].body) == {"model": "coder", "input": "Hello."}


def test_body_comes_from_a_file_or_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"model": "m", "input": "Hi"}', encoding="utf-8")
    assert json.loads(explain(str(file))[1].sent[0].body)["model"] == "m"
    assert json.loads(explain(str(file), "--model", "n")[1].sent[0].body)["model"] == "n"
    gemini = explain("-", "--dialect", "gemini", "--model", "n", stdin='{"contents": []}')[1]
    assert json.loads(gemini.sent[0].body) == {"contents": []}


def test_plan_can_be_printed_as_json() -> None:
    assert json.loads(explain("--model", "coder", "--json")[0])["model"] == "coder"


def test_command_needs_a_model_or_a_file() -> None:
    with pytest.raises(InvalidUsage, match="expected --model"):
        explain()


@pytest.mark.parametrize("text", ["{", None])
def test_unreadable_file_is_an_error(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "request.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(CommandFailed, match="cannot read a JSON object"):
        explain(str(file))
