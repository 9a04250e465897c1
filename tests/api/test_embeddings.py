"""`POST /v1/embeddings` and the embeddings of Gemini's and Ollama's APIs, over strict servers of every API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import ollama
import openai
import pytest
from google import genai
from google.genai.types import EmbedContentConfig, HttpOptions
from msgspec.structs import replace
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport
from tests.running import Running, one_upstream, running, until

from antiphon.config import (
    Config,
    KeyConfig,
    ModelConfig,
    RetryConfig,
    StoreConfig,
    TargetConfig,
    TraceConfig,
    UpstreamConfig,
)
from antiphon.config.model_rules import ModelRule
from antiphon.protocol.output_limits import OutputLimits
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, OllamaServer, ResponsesServer
from antiphon.testing.embeddings import make_vector

pytestmark = pytest.mark.io
SERVERS: dict[str, Any] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
RENAMED = ModelRule(from_="alias", to="real")
TEXTS = ["The first text.", "Another one."]


@contextmanager
def gateway_over(dialect: str, **settings: Any) -> Iterator[tuple[Running, Any]]:
    with SERVERS[dialect]() as server:
        with running(one_upstream(server.base_url, dialect=dialect, **settings)) as gateway:
            yield gateway, server


def openai_client(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)


def gemini_client(gateway: Running) -> genai.Client:
    return genai.Client(api_key="none", http_options=HttpOptions(base_url=gateway.url))


@pytest.mark.parametrize("dialect", SERVERS)
def test_embeddings_reach_the_openai_sdk_from_every_api(dialect: str) -> None:
    """The SDK asks for base64 unless the caller names a format."""
    with gateway_over(dialect) as (gateway, _), openai_client(gateway) as client:
        plain = client.embeddings.create(model="m", input=TEXTS, encoding_format="float")
        packed = client.embeddings.create(model="m", input=TEXTS, dimensions=4)
    assert [item.embedding for item in plain.data] == [make_vector(text) for text in TEXTS]
    assert [item.embedding for item in packed.data] == [make_vector(text, 4) for text in TEXTS]
    assert (plain.model, plain.usage.prompt_tokens > 0) == ("m", True)


@pytest.mark.parametrize("dialect", SERVERS)
def test_embeddings_reach_google_genai_from_every_api(dialect: str) -> None:
    with gateway_over(dialect) as (gateway, server), gemini_client(gateway) as client:
        answer = client.models.embed_content(
            model="m", contents=list(TEXTS), config=EmbedContentConfig(output_dimensionality=5)
        )
    assert [entry.values for entry in answer.embeddings or []] == [make_vector(text, 5) for text in TEXTS]
    assert len(server.received) == 1


@pytest.mark.parametrize("dialect", SERVERS)
def test_embeddings_reach_the_ollama_package_from_every_api(dialect: str) -> None:
    with gateway_over(dialect) as (gateway, _), ollama.Client(host=gateway.url) as client:
        several = client.embed(model="m", input=TEXTS)
        one = client.embeddings(model="m", prompt=TEXTS[0])
    assert [list(vector) for vector in several.embeddings] == [make_vector(text) for text in TEXTS]
    assert list(one.embedding) == make_vector(TEXTS[0])


@pytest.mark.parametrize("dialect", SERVERS)
def test_single_gemini_input_is_answered_by_every_api(dialect: str) -> None:
    with gateway_over(dialect) as (gateway, _):
        body = {"content": {"parts": [{"text": "a"}, {"text": "b"}]}}
        answer = gateway.post(body, "/v1beta/models/m:embedContent")
    joined = "ab" if dialect == "gemini" else "a\nb"
    assert answer.json()["embedding"]["values"] == make_vector(joined)


# Within one API


def test_request_of_the_same_api_passes_unchanged() -> None:
    answer = (
        b'{"object":"list", "data":[{"embedding":[1]}],"model":"m","x":1,"usage":{"prompt_tokens":7,"total_tokens":7}}'
    )
    transport = ScriptedTransport(ScriptedAnswer([answer], JSON))
    body = {"model": "m", "input": [1, 2], "input_type": "query", "user": "u"}
    with running(one_upstream("http://lab/v1"), transport=transport) as gateway:
        response = gateway.post(body, "/v1/embeddings")
    assert response.content == answer
    assert response.headers["antiphon-upstream"] == "lab"
    assert "antiphon-losses" not in response.headers
    assert transport.asked[0].url == "http://lab/v1/embeddings"
    assert transport.asked[0].body == b'{"model":"m","input":[1,2],"input_type":"query","user":"u"}'


@pytest.mark.parametrize("data", ["[]", '[{"embedding":[1]}]', '[{"embedding":[1]},{"embedding":null}]', "{}"])
def test_answer_of_the_same_api_without_all_vectors_is_asked_of_the_next_target(data: str) -> None:
    upstreams = [UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}", models=["m"]) for name in "ab"]
    pieces = (f'{{"data":{data}}}', '{"data":[{"embedding":[1]},{"embedding":"AAAA"}]}')
    transport = ScriptedTransport(*(ScriptedAnswer([piece.encode()], JSON) for piece in pieces))
    with running(Config(upstreams=upstreams), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "input": ["a", "b"]}, "/v1/embeddings")
    assert (answer.status_code, answer.headers["antiphon-attempts"]) == (200, "2")


def test_mapped_model_has_the_servers_name_there_and_the_clients_name_here() -> None:
    with ChatServer(models=["real"]) as server:
        config = one_upstream(server.base_url, models=[RENAMED])
        with running(config) as gateway:
            answer = gateway.post({"model": "alias", "input": "a"}, "/v1/embeddings").json()
    assert answer["model"] == "alias"
    assert server.received[0].json["model"] == "real"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models/alias:embedContent", {"model": "models/alias", "content": {"parts": [{"text": "a"}]}}),
        (
            "/v1beta/models/alias:batchEmbedContents",
            {"requests": [{"model": "models/alias", "content": {"parts": [{"text": "a"}]}}]},
        ),
    ],
)
def test_mapped_model_of_gemini_clients_is_replaced_where_the_body_names_it(path: str, body: dict[str, Any]) -> None:
    with GeminiServer() as server:
        config = one_upstream(server.base_url, dialect="gemini", models=[RENAMED])
        with running(config) as gateway:
            assert gateway.post(body, path).status_code == 200
    [received] = server.received
    assert "models/real:" in received.path
    assert "alias" not in received.body.decode()


# Losses and errors


def test_settings_without_an_equivalent_are_reported_losses() -> None:
    body = {"model": "m", "input": "a", "user": "u", "input_type": "query"}
    with gateway_over("gemini") as (gateway, server):
        answer = gateway.post(body, "/v1/embeddings")
        refused = gateway.post(body, "/v1/embeddings", antiphon_losses="strict")
    assert answer.headers["antiphon-losses"] == "2; input_type, user"
    assert answer.headers["antiphon-estimated"] == "true"
    assert refused.json()["error"]["code"] == "lossy_translation"
    assert len(server.received) == 1


def test_task_of_a_gemini_client_is_a_loss_elsewhere() -> None:
    body = {"content": {"parts": [{"text": "a"}]}, "taskType": "RETRIEVAL_DOCUMENT", "title": "T", "x": 1}
    with gateway_over("ollama") as (gateway, _):
        answer = gateway.post(body, "/v1beta/models/m:embedContent")
    assert answer.headers["antiphon-losses"] == "3; taskType, title, x"


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/v1/embeddings", {"model": "m", "input": []}, "input", "expected 1 to 2048 inputs, got 0"),
        ("/v1/embeddings", {"model": "m", "input": ["a"] * 2049}, "input", "got 2049"),
        ("/v1/embeddings", {"model": "m", "input": ["a", ""]}, "input[1]", "not empty"),
        ("/v1/embeddings", {"model": "m", "input": {"a": 1}}, "input", "expected a text"),
        ("/v1/embeddings", {"model": "m"}, "input", "missing"),
        ("/v1/embeddings", {"model": "m", "input": "a", "dimensions": 0}, "dimensions", "expected 1 to 65536, got 0"),
        ("/v1/embeddings", {"model": "m", "input": "a", "encoding_format": "x"}, "encoding_format", "base64"),
        ("/v1/embeddings", {"model": "m", "input": [1, 2]}, "input", "takes texts, not tokens"),
        ("/api/embed", {"model": "m", "input": ""}, "input[0]", "not empty"),
    ],
)
def test_invalid_request_names_the_field_and_what_is_allowed(
    path: str, body: dict[str, Any], param: str, message: str
) -> None:
    with gateway_over("gemini") as (gateway, server):
        answer = gateway.post(body, path)
    assert answer.status_code == 400
    error = answer.json()["error"]
    text = error if isinstance(error, str) else error["message"]
    assert message in text
    assert param in text
    assert server.received == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"content": {"parts": [{"inlineData": {}}]}}, "content.parts[0]"),
        ({"content": {"parts": []}}, "not empty"),
    ],
)
def test_gemini_content_without_text_is_refused_elsewhere(body: dict[str, Any], message: str) -> None:
    with gateway_over("chat") as (gateway, _):
        answer = gateway.post(body, "/v1beta/models/m:embedContent")
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_gemini_batch_with_different_settings_is_refused_elsewhere() -> None:
    content = {"parts": [{"text": "a"}]}
    body = {"requests": [{"content": content, "taskType": "A"}, {"content": content}]}
    with gateway_over("chat") as (gateway, _):
        answer = gateway.post(body, "/v1beta/models/m:batchEmbedContents")
    assert (answer.status_code, "same settings" in answer.text) == (400, True)


def test_api_without_embeddings_is_a_404_that_says_why() -> None:
    with MessagesServer() as server, running(one_upstream(server.base_url, dialect="messages")) as gateway:
        answer = gateway.post({"model": "m", "input": "a"}, "/v1/embeddings")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_supported")
    assert "'lab' has no embeddings: its API is Messages" in answer.json()["error"]["message"]
    assert server.received == []


def test_answer_with_another_number_of_vectors_is_an_upstream_fault() -> None:
    answers = [b'{"embeddings":[]}', b"no json"]
    for body in answers:
        transport = ScriptedTransport(ScriptedAnswer([body], JSON))
        with running(one_upstream("http://lab", dialect="ollama"), transport=transport) as gateway:
            answer = gateway.post({"model": "m", "input": "a"}, "/v1/embeddings")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")


# Routing, keys, usage, traces


def two_targets(first: str, second: str, second_dialect: Any = "chat") -> Config:
    return Config(
        upstreams=[
            UpstreamConfig(name="one", dialect="messages", base_url=first, models=["x"]),
            UpstreamConfig(name="two", dialect=second_dialect, base_url=second, models=["y"]),
        ],
        models=[
            ModelConfig(
                name="vectors",
                targets=[
                    TargetConfig(upstream="one", model="x"),
                    TargetConfig(upstream="two", model="y", priority=2),
                ],
            )
        ],
    )


def test_target_without_embeddings_is_skipped() -> None:
    with ChatServer() as server, running(two_targets("http://127.0.0.1:9", server.base_url)) as gateway:
        answer = gateway.post({"model": "vectors", "input": "a"}, "/v1/embeddings")
    assert answer.status_code == 200
    assert answer.headers["antiphon-upstream"] == "two"
    assert answer.json()["model"] == "vectors"


def test_failed_target_is_replaced_by_the_next() -> None:
    with ChatServer() as server:
        config = two_targets("http://127.0.0.1:9", server.base_url)
        first = replace(config.upstreams[0], dialect="chat")
        with running(replace(config, upstreams=[first, config.upstreams[1]])) as gateway:
            answer = gateway.post({"model": "vectors", "input": "a"}, "/v1/embeddings")
            [entry] = gateway.requests(1)
    assert (answer.status_code, answer.headers["antiphon-attempts"]) == (200, "2")
    assert (entry["upstream"], entry["model"]) == ("two", "vectors")


@pytest.mark.parametrize("count", [100, 101, 250])
def test_request_above_the_limit_of_the_server_is_sent_in_parts(count: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    with gateway_over("gemini") as (gateway, server):
        answer = gateway.post({"model": "m", "input": texts}, "/v1/embeddings")
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        assert [entry["index"] for entry in data] == list(range(count))
        assert [entry["embedding"] for entry in data] == list(map(make_vector, texts))
        sizes = [len(request.json["requests"]) for request in server.received]
        assert sizes == [100] * (count // 100) + ([count % 100] if count % 100 else [])
        assert answer.headers["antiphon-attempts"] == "1"
        [entry] = gateway.requests(1)
        assert entry["input_tokens"] == answer.json()["usage"]["prompt_tokens"] > count


def gemini_answer(count: int, tokens: int | None) -> ScriptedAnswer:
    usage = {} if tokens is None else {"usageMetadata": {"promptTokenCount": tokens}}
    return ScriptedAnswer([msgspec.json.encode({"embeddings": [{"values": [0.5]}] * count, **usage})], JSON)


@pytest.mark.parametrize(
    ("counts", "tokens", "is_estimate"), [((40, 2), 42, False), ((40, None), 303, True)], ids=["counted", "estimated"]
)
def test_usage_of_parts_is_summed(counts: tuple[int | None, int | None], tokens: int, is_estimate: bool) -> None:
    transport = ScriptedTransport(gemini_answer(100, counts[0]), gemini_answer(1, counts[1]))
    with running(one_upstream("http://lab/v1beta", dialect="gemini"), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "input": ["a text"] * 101}, "/v1/embeddings")
    assert answer.json()["usage"]["prompt_tokens"] == tokens
    assert ("antiphon-estimated" in answer.headers) == is_estimate


def test_part_with_another_number_of_vectors_is_an_upstream_fault() -> None:
    transport = ScriptedTransport(gemini_answer(99, 1), gemini_answer(2, 1))  # as many as expected together
    with running(one_upstream("http://lab/v1beta", dialect="gemini"), transport=transport) as gateway:
        answer = gateway.post({"model": "m", "input": ["a"] * 101}, "/v1/embeddings")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")


def test_parts_have_one_limit_together() -> None:
    transport = ScriptedTransport(gemini_answer(100, 1), gemini_answer(100, 1))
    config = one_upstream("http://lab/v1beta", dialect="gemini")
    limits = OutputLimits(max_bytes=len(msgspec.json.encode([{"values": [0.5]}] * 100)) + 100, max_items=1000)
    with running(config, transport=transport) as gateway:
        gateway.services.output_limits = limits
        answer = gateway.post({"model": "m", "input": ["a"] * 200}, "/v1/embeddings")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")


def test_failed_part_moves_the_whole_request_to_the_next_target(tmp_path: Any) -> None:
    transport = ScriptedTransport(
        gemini_answer(100, 5), ScriptedAnswer([b"{}"], JSON, 500), gemini_answer(100, 7), gemini_answer(1, 7)
    )
    config = two_targets("http://lab/v1beta", "http://lab/v1beta", second_dialect="gemini")
    upstreams = [replace(config.upstreams[0], dialect="gemini"), config.upstreams[1]]
    config = replace(config, upstreams=upstreams, store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
    with running(config, transport=transport) as gateway:
        answer = gateway.post({"model": "vectors", "input": ["a"] * 101}, "/v1/embeddings")
        until(lambda: len(gateway.get("/v1/usage?by=upstream").json()["data"]) == 2)
        rows = gateway.get("/v1/usage?by=upstream").json()["data"]
    assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-attempts"]) == ("two", "2")
    assert answer.json()["usage"]["prompt_tokens"] == 14
    assert {row["upstream"]: (row["requests"], row["input_tokens"]) for row in rows} == {"one": (0, 5), "two": (1, 14)}


def test_error_of_a_target_is_not_hidden_by_one_that_is_skipped() -> None:
    config = two_targets("http://127.0.0.1:9", "http://127.0.0.1:9")
    first, second = config.upstreams
    upstreams = [replace(first, dialect="chat"), replace(second, dialect="messages")]
    with running(replace(config, upstreams=upstreams, retry=RetryConfig(rounds=1))) as gateway:
        answer = gateway.post({"model": "vectors", "input": "a"}, "/v1/embeddings")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unavailable")


def test_target_that_loses_a_required_parameter_is_skipped() -> None:
    body = {"content": {"parts": [{"text": "a"}]}, "taskType": "CLUSTERING", "provider": {"require_parameters": True}}
    with ChatServer() as lossy, GeminiServer() as server:
        config = two_targets(lossy.base_url, server.base_url, second_dialect="gemini")
        upstreams = [replace(config.upstreams[0], dialect="chat"), config.upstreams[1]]
        with running(replace(config, upstreams=upstreams)) as gateway:
            answer = gateway.post(body, "/v1beta/models/vectors:embedContent")
    assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "two")
    assert lossy.received == []


def test_error_of_the_upstream_reaches_the_client_without_its_key() -> None:
    refusal = ScriptedAnswer([b'{"error":{"message":"bad sk-0123456789"}}'], JSON, 400)
    config = one_upstream("http://lab/v1", api_key_env="KEY")
    with running(config, transport=ScriptedTransport(refusal), environ={"KEY": "sk-0123456789"}) as gateway:
        answer = gateway.post({"model": "m", "input": "a"}, "/v1/embeddings")
    assert (answer.status_code, "sk-0123456789" in answer.text) == (400, False)


def test_caller_chooses_among_the_targets() -> None:
    body = {"model": "vectors", "input": "a", "provider": {"only": ["two"], "sort": "price"}}
    with ChatServer() as server, running(two_targets("http://127.0.0.1:9", server.base_url)) as gateway:
        answer = gateway.post(body, "/v1/embeddings")
    assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-attempts"]) == ("two", "1")
    assert answer.headers["antiphon-losses"] == "1; provider.sort"
    assert "provider" not in server.received[0].json


def test_trace_has_the_error_of_the_upstream(tmp_path: Any) -> None:
    config = replace(one_upstream("http://lab/v1"), trace=TraceConfig(dir=str(tmp_path / "traces")))
    refusal = ScriptedAnswer([b'{"error":{"message":"no such thing"}}'], JSON, 400)
    with running(config, transport=ScriptedTransport(refusal)) as gateway:
        assert gateway.post({"model": "m", "input": "a"}, "/v1/embeddings").status_code == 400
    recorded = b"".join(file.read_bytes() for file in (tmp_path / "traces").rglob("*") if file.is_file())
    assert b"no such thing" in recorded


def test_usage_and_trace_of_embeddings_are_recorded(tmp_path: Any) -> None:
    with ChatServer() as server:
        config = replace(
            one_upstream(server.base_url),
            store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"),
            trace=TraceConfig(dir=str(tmp_path / "traces")),
        )
        with running(config) as gateway:
            gateway.post({"model": "m", "input": "abc"}, "/v1/embeddings")
            [entry] = gateway.requests(1)
            usage = gateway.get("/v1/usage").json()
    assert (entry["input_tokens"], entry["output_tokens"]) == (3, 0)
    assert usage["data"][0]["input_tokens"] == 3
    recorded = b"".join(file.read_bytes() for file in (tmp_path / "traces").rglob("*") if file.is_file())
    assert b"/v1/embeddings" in recorded


def test_key_is_required() -> None:
    config = replace(one_upstream("http://127.0.0.1:9"), keys=[KeyConfig(name="a", env="KEY")])
    with running(config, environ={"KEY": "k" * 20}) as gateway:
        assert gateway.post({"model": "m", "input": "a"}, "/v1/embeddings").status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/embeddings", {"model": "m", "input": ["a", "b", "c"]}, "input"),
        ("/api/embed", {"model": "m", "input": ["a", "b", "c"]}, "input"),
        (
            "/v1beta/models/m:batchEmbedContents",
            {"requests": [{"model": "models/m", "content": {"parts": [{"text": "a"}]}}] * 3},
            "requests",
        ),
    ],
)
def test_too_many_inputs_are_refused(path: str, body: dict[str, Any], field: str) -> None:
    with ChatServer() as server:
        config = one_upstream(server.base_url)
        with running(replace(config, server=replace(config.server, max_input_items=2))) as gateway:
            answer = gateway.post(body, path)
            assert answer.status_code == 400
            assert f"{field}: expected at most 2 items in one request, got 3" in answer.text
            assert server.received == []


def test_large_request_for_embeddings_is_read_in_a_worker_process() -> None:
    """Its words about routing too."""
    with gateway_over("chat") as (gateway, server):
        texts = [f"{number} " + "x" * 500_000 for number in range(3)]
        body = {"model": "m", "input": texts, "provider": {"order": ["lab"]}}
        answer = gateway.post(body, "/v1/embeddings").json()
        assert [each["embedding"] for each in answer["data"]] == [make_vector(text) for text in texts]
        assert "provider" not in server.received[0].json
