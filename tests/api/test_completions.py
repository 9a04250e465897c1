"""`POST /v1/completions` over strict servers, whole and streamed."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.gateway.scripted import JSON, SSE, ScriptedAnswer, ScriptedTransport
from tests.running import Running, one_upstream, running

from antiphon.config import Config, ModelConfig, TargetConfig, UpstreamConfig
from antiphon.config.model_rules import ModelRule
from antiphon.errors import UpstreamFault
from antiphon.testing import ChatServer, GeminiServer, ResponsesServer

pytestmark = pytest.mark.io
PATH = "/v1/completions"
USAGE_CHUNK = b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}\n\n'


def client_of(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)


def scripted(*pieces: Any, headers: dict[str, str] = SSE, status: int = 200) -> ScriptedTransport:
    return ScriptedTransport(ScriptedAnswer(pieces, headers, status))


@pytest.mark.parametrize("server_type", [ChatServer, ResponsesServer])
def test_completion_reaches_the_openai_sdk_whole_and_streamed(server_type: Any) -> None:
    dialect = "chat" if server_type is ChatServer else "responses"
    with server_type() as server, running(one_upstream(server.base_url, dialect=dialect)) as gateway:
        with client_of(gateway) as client:
            answer = client.completions.create(model="m", prompt="Once upon", suffix="end")
            stream = client.completions.create(model="m", prompt="Once upon", stream=True)
            streamed = list(stream)
        entries = gateway.requests(2)
    assert answer.choices[0].text == "Once upon"
    assert "".join(chunk.choices[0].text for chunk in streamed) == "Once upon"
    assert server.received[0].json == {"model": "m", "prompt": "Once upon", "suffix": "end"}
    assert [(entry["input_tokens"], entry["output_tokens"]) for entry in entries] == [(9, 9), (9, 9)]


def test_usage_of_a_stream_is_sent_only_to_a_client_that_asked_for_it() -> None:
    body = {"model": "m", "prompt": "a", "stream": True}
    with ChatServer() as server, running(one_upstream(server.base_url)) as gateway:
        without = gateway.post(body, PATH).text
        with_usage = gateway.post({**body, "stream_options": {"include_usage": True, "x": 1}}, PATH).text
    assert ('"usage"' in without, '"usage"' in with_usage) == (False, True)
    assert without.endswith("data: [DONE]\n\n")
    assert [received.json["stream_options"] for received in server.received] == [
        {"include_usage": True},
        {"include_usage": True, "x": 1},
    ]


def test_mapped_model_has_the_clients_name_in_answers() -> None:
    with ChatServer(models=["real"]) as server:
        config = one_upstream(server.base_url, models=[ModelRule(from_="alias", to="real")])
        with running(config) as gateway:
            whole = gateway.post({"model": "alias", "prompt": "ab"}, PATH)
            stream = gateway.post({"model": "alias", "prompt": "ab", "stream": True}, PATH)
    assert whole.json()["model"] == "alias"
    assert stream.text.count('"model":"alias"') == 2
    assert "real" not in whole.text + stream.text


def test_api_without_completions_is_a_404_that_says_why() -> None:
    with GeminiServer() as server, running(one_upstream(server.base_url, dialect="gemini")) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a"}, PATH)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_supported")
    assert "its API is Gemini" in answer.json()["error"]["message"]


def test_prompt_is_required() -> None:
    with running(one_upstream("http://127.0.0.1:9")) as gateway:
        answer = gateway.post({"model": "m"}, PATH)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


# Failures of streams


def test_stream_that_fails_before_its_first_text_is_asked_of_the_next_target() -> None:
    opening = b'data: {"choices":[{"text":"","finish_reason":null}]}\n\n'
    failing = ScriptedAnswer([opening, UpstreamFault("gone", code="upstream_disconnected")], SSE)
    empty = ScriptedAnswer([opening], SSE)
    good = ScriptedAnswer([b'data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n'], SSE)
    names = ("one", "two", "three")
    config = Config(
        upstreams=[
            UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}", models=["x"]) for name in names
        ],
        models=[
            ModelConfig(
                name="m",
                targets=[TargetConfig(upstream=name, model="x", priority=index) for index, name in enumerate(names, 1)],
            )
        ],
    )
    transport = ScriptedTransport(failing, empty, good)
    with running(config, transport=transport) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a", "stream": True}, PATH)
    assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-attempts"]) == ("three", "3")
    assert answer.text.startswith('data: {"choices":[{"text":"a"}]')


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([b'data: {"choices":[{}]}\n\n', UpstreamFault("gone", code="upstream_disconnected")], "upstream_disconnected"),
        ([b'data: {"choices":[{}]}\n\ndata: {"error":{"message":"boom"}}\n\n'], "upstream_error"),
        ([b'data: {"choices":[{}]}\n\ndata: nonsense\n\n'], "upstream_invalid_response"),
    ],
)
def test_failure_in_the_middle_of_a_stream_is_its_last_event(pieces: list[Any], code: str) -> None:
    with running(one_upstream("http://lab"), transport=scripted(*pieces)) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a", "stream": True}, PATH)
        [entry] = gateway.requests(1)
    assert answer.status_code == 200
    assert '"error"' in answer.text.split("\n\n")[-2]
    assert "[DONE]" not in answer.text
    assert entry["error"] == code


def test_stream_without_its_end_ends_with_an_error() -> None:
    with running(one_upstream("http://lab"), transport=scripted(b'data: {"choices":[{"text":"a"}]}\n\n')) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a", "stream": True}, PATH)
    assert '"upstream_disconnected"' in answer.text.split("\n\n")[-2]


@pytest.mark.parametrize("body", [b'{"error":{"message":"no","code":503}}', b"{}"])
def test_whole_answer_without_a_completion_is_asked_of_the_next_target(body: bytes) -> None:
    upstreams = [UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}", models=["m"]) for name in "ab"]
    good = ScriptedAnswer([b'{"choices":[{"text":"a"}]}'], JSON)
    transport = ScriptedTransport(ScriptedAnswer([body], JSON), good)
    with running(Config(upstreams=upstreams), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a"}, PATH)
    assert (answer.status_code, answer.headers["antiphon-attempts"]) == (200, "2")


def test_error_in_the_first_event_is_an_error_status() -> None:
    transport = scripted(b'data: {"error":{"message":"too many","code":"rate_limit_exceeded"}}\n\n')
    with running(one_upstream("http://lab"), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a", "stream": True}, PATH)
    assert answer.status_code == 429


def test_event_without_its_blank_line_at_the_end_is_delivered() -> None:
    transport = scripted(b'data: {"choices":[{"text":"a"}]}\n')
    with running(one_upstream("http://lab"), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a", "stream": True}, PATH)
    assert '"text":"a"' in answer.text


def test_whole_answer_that_is_no_json_is_an_upstream_fault() -> None:
    with running(one_upstream("http://lab"), transport=scripted(b"nonsense", headers=JSON)) as gateway:
        answer = gateway.post({"model": "m", "prompt": "a"}, PATH)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
    assert answer.headers["x-should-retry"] == "false"
