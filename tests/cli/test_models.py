"""`antiphon models`."""

from __future__ import annotations

import io
import json

import pytest
from tests.cli.network import MODELS, FakeAnswer, FakeNetwork, Terminal, nobody

from antiphon.cli import models
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed


def _models(*words: str, body: bytes = MODELS, out: io.StringIO | None = None) -> tuple[str, str]:
    out, err = out or io.StringIO(), io.StringIO()
    network = FakeNetwork(models=FakeAnswer(body))
    assert models.run(make_parser().parse_args(["models", *words]), out, err, environ={}, transport=network) == 0
    assert network.closed
    return out.getvalue(), err.getvalue()


def test_models_prints_each_model_with_its_upstream() -> None:
    """API-5."""
    assert _models() == ("mock-1  lab\nlocal   embedded\n", "")


def test_models_prints_a_heading_on_terminals() -> None:
    assert _models(out=Terminal())[0] == "\x1b[1mMODEL   UPSTREAM\x1b[0m\nmock-1  lab\nlocal   embedded\n"


def test_models_json_prints_one_object() -> None:
    out, _ = _models("--json")
    listed = json.loads(out)
    assert (listed["object"], listed["data"][0]) == ("list", json.loads(MODELS)["data"][0])
    assert listed["data"][1] == {"id": "local", "object": "model", "created": 0, "owned_by": "embedded"}
    assert out.count("\n") == 1


def test_models_reports_an_empty_list() -> None:
    out, err = _models(body=b'{"object":"list","data":[]}')
    assert out == ""
    assert "lists no models" in err


def test_models_names_the_patterns() -> None:
    out, err = _models(body=b'{"data":[{"id":"m","owned_by":"lab"}],"patterns":["lab/*","gpt-*"]}')
    assert (out, err) == ("m      lab\n", "other names are served if they match: lab/*, gpt-*\n")
    out, err = _models(body=b'{"data":[],"patterns":["o9-*"]}')
    assert (out, err) == ("", "the gateway lists no models; choose one that matches o9-* with --model\n")


def test_models_removes_control_characters_from_names() -> None:
    assert _models(body=b'{"data":[{"id":"a\\u001b[2J\\nb"}]}')[0] == "a[2J b\n"


def test_models_without_a_gateway_fails() -> None:
    args = make_parser().parse_args(["models", "--url", "http://nowhere:1"])
    with pytest.raises(CommandFailed, match="no gateway answers at http://nowhere:1"):
        models.run(args, io.StringIO(), io.StringIO(), environ={}, transport=FakeNetwork(models=nobody()))
