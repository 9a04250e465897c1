"""`api/ollama`: one model, and the version, over sockets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running

from antiphon import __version__
from antiphon.dialects.dialect import ServerDialectName
from antiphon.testing import ChatServer, GeminiServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


def test_show_reports_the_context_size_of_the_configuration() -> None:
    """API-5: under the name that clients build from the architecture. A model of unknown size has none."""
    with ChatServer([]) as server:
        config = one_upstream(server.base_url)
        upstream = replace(config.upstreams[0], models=["*"], context={"large": 200_000})
        with running(replace(config, upstreams=[upstream])) as gateway:
            shown = [gateway.post({"model": model}, "/api/show").json()["model_info"] for model in ("large", "other")]
    assert [info.get(f"{info['general.architecture']}.context_length") for info in shown] == [200_000, None]


def test_show_reports_the_context_size_that_the_upstream_lists() -> None:
    """API-5."""
    with GeminiServer([]) as server, running(one_upstream(server.base_url, dialect="gemini")) as gateway:
        info = gateway.post({"name": "mock-1"}, "/api/show").json()["model_info"]
    assert info["unknown.context_length"] == 1_048_576


@pytest.mark.parametrize(
    ("dialect", "profile", "model", "capabilities"),
    [
        ("chat", "local", "mock-1", ["completion"]),
        ("chat", None, "mock-1", ["completion", "tools", "vision", "thinking"]),
        ("responses", "openai", "gpt-4o", ["completion", "tools", "vision"]),
        ("responses", "openai", "gpt-5", ["completion", "tools", "vision", "thinking"]),
        ("messages", None, "mock-1", ["completion", "tools", "vision", "thinking"]),
        ("gemini", "google", "gemini-2.0-flash", ["completion", "tools", "vision"]),
        ("gemini", "google", "gemini-2.5-flash", ["completion", "tools", "vision", "thinking"]),
        ("ollama", None, "mock-1", ["completion", "tools", "vision", "thinking"]),
    ],
)
def test_show_claims_only_what_the_profile_accepts(
    dialect: ServerDialectName, profile: str | None, model: str, capabilities: list[str]
) -> None:
    with ChatServer([]) as server:
        config = one_upstream(server.base_url, dialect=dialect)
        upstream = replace(config.upstreams[0], models=["*"], profile=profile)
        with running(replace(config, upstreams=[upstream])) as gateway:
            assert gateway.post({"model": model}, "/api/show").json()["capabilities"] == capabilities


def test_list_of_models_claims_no_capabilities() -> None:
    with ChatServer([]) as server, running(one_upstream(server.base_url)) as gateway:
        [model] = gateway.get("/api/tags").json()["models"]
    assert "capabilities" not in model


def test_show_without_a_model_is_refused() -> None:
    with ChatServer([]) as server, running(one_upstream(server.base_url)) as gateway:
        answer = gateway.post({}, "/api/show")
    assert answer.status_code == 400
    assert answer.json() == {"error": "model is missing: expected the name of a model"}


def test_version_is_the_version_of_the_gateway() -> None:
    with ChatServer([]) as server, running(one_upstream(server.base_url)) as gateway:
        assert gateway.get("/api/version").json() == {"version": __version__}
