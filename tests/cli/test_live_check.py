"""The live check of upstreams."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from antiphon.cli.live_check import LiveResult, check_store, check_upstreams, describe_results
from antiphon.cli.terminal import TextStyler
from antiphon.config import Config, ModelRule, StoreConfig, UpstreamConfig
from antiphon.testing import ChatServer, GeminiServer

pytestmark = pytest.mark.io


def test_live_check_reports_models_and_errors() -> None:
    with ChatServer() as chat, GeminiServer() as gemini:
        config = Config(
            upstreams=[
                UpstreamConfig(name="chat", dialect="chat", base_url=chat.base_url),
                UpstreamConfig(name="gemini", dialect="gemini", base_url=gemini.base_url, api_key_env="GEMINI"),
                UpstreamConfig(name="nobody", dialect="chat", base_url="http://127.0.0.1:1/v1"),
                UpstreamConfig(name="local", dialect="chat", embedded=True),
            ]
        )
        results = check_upstreams(config, {"GEMINI": "AIza-test"})
    assert [(result.upstream, result.model_count > 0, bool(result.error)) for result in results] == [
        ("chat", True, False),
        ("gemini", True, False),
        ("nobody", False, True),
        ("local", False, False),
    ]
    assert "base_url is http://127.0.0.1:1/v1" in results[2].error
    assert results[3].note == "the embedded model is installed"


def test_live_check_does_not_ask_an_upstream_without_its_key() -> None:
    with ChatServer() as chat:
        upstream = UpstreamConfig(name="chat", dialect="chat", base_url=chat.base_url, api_key_env="CHAT_KEY")
        [result] = check_upstreams(Config(upstreams=[upstream]), {})
    assert result == LiveResult("chat", note="not asked, because it is not used: CHAT_KEY is not set")


def test_live_check_warns_of_models_that_the_server_does_not_list() -> None:
    with ChatServer() as chat:
        upstream = UpstreamConfig(
            name="chat", dialect="chat", base_url=chat.base_url, models=["gpt-*", ModelRule(from_="a", to="b"), "c"]
        )
        [result] = check_upstreams(Config(upstreams=[upstream]), {})
    assert result.warning == "the server does not list b, c"


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "; the key is in CHAT_KEY"), (404, "; check base_url, which is http://127.0.0.1:"), (500, "")],
)
def test_live_check_shows_the_status_and_the_setting(status: int, hint: str) -> None:
    with _server(status) as base_url:
        upstream = UpstreamConfig(name="chat", dialect="chat", base_url=base_url, api_key_env="CHAT_KEY")
        [result] = check_upstreams(Config(upstreams=[upstream]), {"CHAT_KEY": "k"})
    assert result.error.startswith(f"HTTP {status}: ")
    assert "boom" in result.error
    assert hint in result.error


def test_live_check_finds_an_unreachable_postgresql() -> None:
    result = check_store(StoreConfig(url="postgresql://anna:sesame@127.0.0.1:1/antiphon"))
    assert result is not None
    assert result.error
    assert "sesame" not in result.error
    assert check_store(StoreConfig(url="off")) is None


def test_live_results_are_one_line_each() -> None:
    results = [LiveResult("a", 1, warning="w"), LiveResult("long", error="no\nanswer"), LiveResult("b", 2)]
    assert describe_results(results, TextStyler(io.StringIO(), {})) == [
        "a     answers, and lists 1 model",
        "      warning: w",
        "long  no answer",
        "b     answers, and lists 2 models",
    ]
    assert describe_results([], TextStyler(io.StringIO(), {})) == []


@contextmanager
def _server(status: int) -> Iterator[str]:
    """A server that answers every request with an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"error": {"message": "boom"}}'
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
