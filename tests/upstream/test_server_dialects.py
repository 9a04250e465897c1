"""`upstream/server_dialects`: the URLs of each dialect."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidValue
from antiphon.upstream.server_dialects import SERVER_DIALECTS, model_resource_name

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
    assert server_dialect.url(BASE, "m", streams=False) == BASE + whole
    assert server_dialect.url(BASE, "m", streams=True) == BASE + streamed


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
    assert SERVER_DIALECTS["gemini"].url(BASE, model, streams=False) == f"{BASE}/{path}:generateContent"


@pytest.mark.parametrize("model", ["..", "../files", "models/../files", "a//b", "a/./b", "a/", "/a", "models/"])
def test_model_with_path_traversal_is_refused(model: str) -> None:
    """Security: no field of a request chooses another path of the server."""
    with pytest.raises(InvalidValue) as caught:
        model_resource_name(model)
    assert caught.value.param == "model"
