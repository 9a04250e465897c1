"""The process of the local embedding model: its rules with a small stand-in for the weights, and the real model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.running import one_upstream, running

from antiphon.config import Config, UpstreamConfig
from antiphon.errors import ConfigError
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.upstream import embedding_child
from antiphon.upstream.embedded import (
    EMBEDDING_MODEL,
    EmbeddedModel,
    embedding_model_settings,
    is_embedding_model_installed,
)

pytestmark = pytest.mark.io
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".embeddings/bin/python"
SETTINGS = {"model": "m", "key": "secret", "host": "127.0.0.1", "port": 0}


class LengthEmbedder:
    """Vectors of two numbers: the length of the text, and one."""

    dimensions = 2

    def embed(self, texts: list[str], dimensions: int) -> tuple[list[list[float]], int]:
        return [[float(len(text)), 1.0][:dimensions] for text in texts], len(texts)


@contextmanager
def serving() -> Iterator[HTTPConnection]:
    handler = embedding_child.make_handler(LengthEmbedder(), SETTINGS)  # type: ignore[arg-type]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        try:
            yield connection
        finally:
            connection.close()
            server.shutdown()
            thread.join()


def ask(connection: HTTPConnection, body: Any, path: str = "/v1/embeddings", key: str = "secret") -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else content, {"authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_child_answers_texts_and_lists_its_model() -> None:
    with serving() as connection:
        status, answer = ask(connection, {"input": ["a", "abc"]})
        assert (status, [entry["embedding"] for entry in answer["data"]]) == (200, [[1.0, 1.0], [3.0, 1.0]])
        assert answer["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
        _, answer = ask(connection, {"input": "a", "encoding_format": "base64", "dimensions": 1})
        assert answer["data"][0]["embedding"] == "AACAPw=="
        assert ask(connection, None, "/v1/models")[1]["data"][0]["id"] == "m"


@pytest.mark.parametrize(
    ("body", "path", "key", "status", "message"),
    [
        ({"input": "a"}, "/v1/embeddings", "wrong", 401, "wrong key"),
        ({"input": "a"}, "/v1/chat/completions", "secret", 404, "only makes embeddings"),
        (None, "/v1/other", "secret", 404, "there is no GET"),
        ({"input": []}, "/v1/embeddings", "secret", 400, "expected 1 to 2048 texts, got 0"),
        ({"input": [1]}, "/v1/embeddings", "secret", 400, "takes no tokens"),
        ({"input": "a", "dimensions": 3}, "/v1/embeddings", "secret", 400, "expected 1 to 2, got 3"),
        (b"[]", "/v1/embeddings", "secret", 400, "no JSON object"),
        (b"{", "/v1/embeddings", "secret", 400, "no JSON object"),
    ],
)
def test_child_refuses_what_it_cannot_answer(body: Any, path: str, key: str, status: int, message: str) -> None:
    with serving() as connection:
        answered_status, answer = ask(connection, body, path, key)
    assert (answered_status, message in answer["error"]["message"]) == (status, True)


def test_missing_package_is_an_error_that_names_the_extra() -> None:
    assert not is_embedding_model_installed(lambda _: None)
    if not is_embedding_model_installed():
        with pytest.raises(ConfigError, match=r"antiphon\[embeddings\]"):
            embedding_model_settings()


def test_local_embedding_model_is_no_default_model_of_turns() -> None:
    chat = one_upstream("http://127.0.0.1:9", models=["one"]).upstreams[0]
    vectors = UpstreamConfig(name="v", dialect="chat", models=[EMBEDDING_MODEL], embedded="embeddings")
    addresses = {"v": UpstreamAddress(base_url="http://127.0.0.1:9")}
    with running(Config(upstreams=[chat, vectors]), addresses=addresses) as gateway:
        assert gateway.services.routes.default_model == "one"


@pytest.mark.heavy
def test_real_model_answers_through_the_gateway() -> None:
    """`make test-embeddings` installs the packages of the model."""
    child_file = ROOT / "src/antiphon/upstream/embedding_child.py"
    model = EmbeddedModel(
        os.environ, [str(PYTHON), "-P", str(child_file)], make_settings=lambda: {"model": EMBEDDING_MODEL}
    )
    model.start()
    try:
        upstream = UpstreamConfig(name="v", dialect="chat", models=[EMBEDDING_MODEL], embedded="embeddings")
        address = UpstreamAddress(base_url=model.base_url, key=model.key)
        with running(Config(upstreams=[upstream]), addresses={"v": address}) as gateway:
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none") as client:
                texts = ["a small cat", "a little kitten", "quarterly tax report"]
                answer = client.embeddings.create(model=EMBEDDING_MODEL, input=texts)
                short = client.embeddings.create(model=EMBEDDING_MODEL, input="a", dimensions=64)
    finally:
        model.stop()
    cat, kitten, report = (entry.embedding for entry in answer.data)
    assert len(cat) == 256
    assert len(short.data[0].embedding) == 64
    assert similarity(cat, kitten) > similarity(cat, report) + 0.2
    assert answer.usage.prompt_tokens > 6


def similarity(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
