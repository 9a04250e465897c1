"""`upstream/server_turn`: the URLs of each dialect. `test_http_response` has the tests of streams."""

from __future__ import annotations

import pytest

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.upstream.server_turn import turn_url

pytestmark = pytest.mark.without_coverage
BASE = "http://lab/v1"


@pytest.mark.parametrize(
    ("dialect", "whole", "streamed"),
    [
        ("chat", "/chat/completions", "/chat/completions"),
        ("responses", "/responses", "/responses"),
        ("messages", "/messages", "/messages"),
        ("gemini", "/models/m:generateContent", "/models/m:streamGenerateContent?alt=sse"),
    ],
)
def test_url_of_a_turn_follows_the_dialect(dialect: str, whole: str, streamed: str) -> None:
    server_dialect = SERVER_DIALECTS[dialect]  # type: ignore[index]
    assert turn_url(server_dialect, BASE, "m", streams=False) == BASE + whole
    assert turn_url(server_dialect, BASE, "m", streams=True) == BASE + streamed


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("m", "models/m"),
        ("models/m", "models/m"),
        ("tunedModels/m", "tunedModels/m"),
        ("publishers/lab/models/m", "publishers/lab/models/m"),
        ("lab/m", "models/lab/m"),
        ("m?x=1#y z:é", "models/m%3Fx%3D1%23y%20z%3A%C3%A9"),
    ],
)
def test_model_in_a_path_is_escaped(model: str, path: str) -> None:
    assert turn_url(SERVER_DIALECTS["gemini"], BASE, model, streams=False) == f"{BASE}/{path}:generateContent"
