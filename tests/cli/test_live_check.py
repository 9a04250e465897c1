"""The live check of upstreams."""

from __future__ import annotations

import io

import pytest

from antiphon.cli.live_check import LiveResult, check_upstreams, describe_results
from antiphon.cli.terminal import TextStyler
from antiphon.config import Config, UpstreamConfig
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
    ]


def test_live_results_are_one_line_each() -> None:
    results = [LiveResult("a", 3), LiveResult("long", error="no\nanswer")]
    assert describe_results(results, TextStyler(io.StringIO(), {})) == [
        "a     answers, and lists 3 models",
        "long  no answer",
    ]
    assert describe_results([], TextStyler(io.StringIO(), {})) == []
