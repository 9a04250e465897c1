"""Compaction over failing targets and keys: the summary is asked for like any turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import Running, running, until

from antiphon import testing
from antiphon.config import Config, ModelConfig, RetryConfig, StoreConfig, TargetConfig, UpstreamConfig
from antiphon.testing import ChatServer, Reply, error, turn
from antiphon.testing.script import ReceivedRequest

pytestmark = pytest.mark.io
ENVIRON = {"FIRST_KEY": "first-key", "SECOND_KEY": "second-key"}
SUMMARY = turn(testing.text("We launch on Tuesday."), testing.usage(120, 30))
TALK = [{"role": "user", "content": "alpha " * 900}, {"role": "user", "content": "And now?"}]


def only_second_key(request: ReceivedRequest) -> Reply:
    return SUMMARY if request.headers["authorization"] == "Bearer second-key" else error(401, "bad key")


@contextmanager
def gateway_of(folder: Path, config: Config) -> Iterator[Running]:
    config = replace(config, store=StoreConfig(url=f"sqlite:///{folder}/a.db"))
    with running(config, environ=ENVIRON) as gateway:
        yield gateway


def usage_rows(gateway: Running) -> list[Any]:
    rows: list[Any] = gateway.get("/v1/usage?by=upstream").json()["data"]
    return rows


def turn_keys(server: ChatServer) -> list[str]:
    """The keys of the turns, without the list of models."""
    return [request.headers.get("authorization", "") for request in server.received if request.method == "POST"]


def two_keys(server: ChatServer) -> Config:
    keys = ["FIRST_KEY", "SECOND_KEY"]
    upstream = UpstreamConfig(name="lab", dialect="chat", base_url=server.base_url, models=["m"], api_key_env=keys)
    return Config(upstreams=[upstream])


def two_targets(first: ChatServer, second: ChatServer) -> Config:
    return Config(
        upstreams=[
            UpstreamConfig(name=name, dialect="chat", base_url=server.base_url, models=[name])
            for name, server in (("first", first), ("second", second))
        ],
        models=[
            ModelConfig(
                name="m",
                targets=[
                    TargetConfig(upstream="first", model="m"),
                    TargetConfig(upstream="second", model="m", priority=2),
                ],
            )
        ],
        retry=RetryConfig(rounds=1),
    )


def test_compact_endpoint_takes_the_next_key(tmp_path: Path) -> None:
    with ChatServer(only_second_key) as server, gateway_of(tmp_path, two_keys(server)) as gateway:
        answer = gateway.post({"model": "m", "input": TALK}, "/v1/responses/compact")
        assert answer.status_code == 200, answer.text
        assert answer.json()["output"][-1]["type"] == "compaction"
        assert len(turn_keys(server)) == 2
        [line] = gateway.requests(1)
        assert line["attempts"] == 2


def test_compact_endpoint_takes_the_next_target_and_counts_usage_once(tmp_path: Path) -> None:
    with ChatServer(lambda _: error(500, "broken")) as failing, ChatServer(lambda _: SUMMARY) as working:
        config = two_targets(failing, working)
        with gateway_of(tmp_path, config) as gateway:
            answer = gateway.post({"model": "m", "input": TALK}, "/v1/responses/compact")
            assert answer.status_code == 200, answer.text
            assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-attempts"]) == ("second", "2")
            [line] = gateway.requests(1)
            assert (line["upstream"], line["attempts"], line["input_tokens"]) == ("second", 2, 120)
            until(lambda: bool(usage_rows(gateway)))
            assert [(row["upstream"], row["requests"], row["input_tokens"]) for row in usage_rows(gateway)] == [
                ("second", 1, 120)
            ]


def test_compact_endpoint_whose_keys_are_all_refused_says_so(tmp_path: Path) -> None:
    with ChatServer(lambda _: error(401, "bad key")) as server, gateway_of(tmp_path, two_keys(server)) as gateway:
        answer = gateway.post({"model": "m", "input": TALK}, "/v1/responses/compact")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_credentials_exhausted")


@pytest.mark.parametrize("stream", [True, False])
def test_compaction_within_a_turn_has_the_key_of_its_attempt(tmp_path: Path, stream: bool) -> None:
    body = {
        "model": "m",
        "input": TALK,
        "stream": stream,
        "context_management": [{"type": "compaction", "compact_threshold": 300}],
    }
    with ChatServer(only_second_key) as server, gateway_of(tmp_path, two_keys(server)) as gateway:
        answer = gateway.post(body)
        assert answer.status_code == 200, answer.text
        assert "encrypted_content" in answer.text
        assert turn_keys(server) == [
            "Bearer first-key",
            "Bearer second-key",
            "Bearer second-key",
        ]  # summary, summary, answer


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("replies", [[error(500)], [SUMMARY, error(500)]], ids=["summary", "answer"])
def test_turn_whose_compaction_or_answer_fails_takes_the_next_target(
    tmp_path: Path, stream: bool, replies: list[Reply]
) -> None:
    left = list(replies)
    body = {
        "model": "m",
        "input": TALK,
        "stream": stream,
        "context_management": [{"type": "compaction", "compact_threshold": 300}],
    }
    with ChatServer(lambda _: left.pop(0)) as failing, ChatServer(lambda _: SUMMARY) as working:
        with gateway_of(tmp_path, two_targets(failing, working)) as gateway:
            answer = gateway.post(body)
            assert answer.status_code == 200, answer.text
            assert answer.text.count('"response.failed"') == 0
            assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-attempts"]) == ("second", "2")
            assert (len(turn_keys(failing)), len(turn_keys(working))) == (len(replies), 2)
