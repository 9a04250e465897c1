"""`gateway/model_catalog`: API-5."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport

from antiphon.config import Config, ModelConfig, ModelRule, TargetConfig, UpstreamConfig
from antiphon.errors import UpstreamFault
from antiphon.gateway import model_catalog
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.routes import Routes
from antiphon.gateway.upstreams import Target


def lab(name: str, *rules: str | ModelRule) -> UpstreamConfig:
    return UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}/v1", models=list(rules))


def listing(*names: object) -> ScriptedAnswer:
    body = msgspec.json.encode({"object": "list", "data": [{"id": name} for name in names]})
    return ScriptedAnswer([body[:10], body[10:]], JSON)


def available(transport: ScriptedTransport, *upstreams: UpstreamConfig) -> list[tuple[str, str]]:
    routes = Routes(Config(upstreams=list(upstreams)), {}, {})
    models = asyncio.run(ModelCatalog(routes, transport, lambda: 0.0).list_models())
    assert models.object == "list"
    return [(model.id, model.owned_by) for model in models.data]


def test_configured_names_are_listed_without_an_upstream_call() -> None:
    """API-5."""
    transport = ScriptedTransport()
    assert available(transport, lab("a", "m1", ModelRule(from_="fast", to="m1")), lab("b", "m1", "m2")) == [
        ("m1", "a"),
        ("fast", "a"),
        ("m2", "b"),
    ]
    assert transport.asked == []


def test_patterns_are_expanded_by_the_upstream_list() -> None:
    transport = ScriptedTransport(listing("mock-1", "other", 7, "mock-2"))
    assert available(transport, lab("a", "mock-*", "named")) == [("named", "a"), ("mock-1", "a"), ("mock-2", "a")]
    assert (transport.asked[0].method, transport.asked[0].url) == ("GET", "http://a/v1/models")


def test_configured_names_come_before_names_that_an_upstream_lists() -> None:
    transport = ScriptedTransport(listing("mock-1"))
    assert available(transport, lab("a", "mock-*"), lab("b", "named")) == [("named", "b"), ("mock-1", "a")]


def test_list_has_the_patterns_of_the_upstreams() -> None:
    routes = Routes(Config(upstreams=[lab("a", "m", "x-*"), lab("b", "x-*", ModelRule(from_="b/*", to="*"))]), {}, {})
    catalog = ModelCatalog(routes, ScriptedTransport(listing(), listing()), lambda: 0.0)
    assert asyncio.run(catalog.list_models()).patterns == ["x-*", "b/*"]


def test_renaming_pattern_lists_the_client_names() -> None:
    transport = ScriptedTransport(listing("llama-3", "x-7-y"))
    rules = [ModelRule(from_="lab/*", to="*"), ModelRule(from_="fixed-*", to="one")]
    assert available(transport, lab("a", *rules)) == [("lab/llama-3", "a"), ("lab/x-7-y", "a")]
    transport = ScriptedTransport(listing("llama-3", "x-7-y", "x-y"))
    assert available(transport, lab("a", ModelRule(from_="*", to="x-*-y"))) == [("7", "a")]


def test_model_list_request_follows_the_dialect() -> None:
    """API-5, REQ-2: names and contexts in the form of each dialect; models that cannot answer are left out."""
    messages = UpstreamConfig(name="a", dialect="messages", base_url="http://a/v1", models=["*"])
    gemini = UpstreamConfig(name="b", dialect="gemini", base_url="http://b/v1beta", models=["*"])
    rows = [
        {"name": "models/one", "inputTokenLimit": 4096, "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
        {"name": "models/two"},
        {"name": 7},
        7,
    ]
    of_gemini = ScriptedAnswer([msgspec.json.encode({"models": rows})], JSON)
    of_messages = ScriptedAnswer(
        [b'{"data":[{"type":"model","id":"m","max_input_tokens":1000}],"has_more":false}'], JSON
    )
    transport = ScriptedTransport(of_messages, of_gemini)
    routes = Routes(Config(upstreams=[messages, gemini]), {}, {})
    catalog = ModelCatalog(routes, transport, lambda: 0.0)

    async def look() -> tuple[list[str], list[int | None]]:
        names = [model.id for model in (await catalog.list_models()).data]
        targets = [Target(upstream=routes.upstreams[at], model=name) for at, name in ((0, "m"), (1, "one"), (1, "two"))]
        return names, [await catalog.context_size(target) for target in targets]

    assert asyncio.run(look()) == (["m", "one", "two"], [1000, 4096, None])
    assert [asked.url for asked in transport.asked] == [
        "http://a/v1/models?limit=1000",
        "http://b/v1beta/models?pageSize=1000",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        UpstreamFault("gone"),
        ScriptedAnswer([b"{}"], JSON, status=401),
        ScriptedAnswer([b"<html>"], {}),
        ScriptedAnswer([b"[]"], {}),
        ScriptedAnswer([b"[" * 100_000], {}),
        ScriptedAnswer([b" " * (model_catalog.MAX_LIST_BYTES + 1), b"more"], {}),
        ScriptedAnswer([b"{", UpstreamFault("cut")], JSON),
    ],
)
def test_upstream_without_a_list_is_left_out(answer: ScriptedAnswer | UpstreamFault) -> None:
    assert available(ScriptedTransport(answer), lab("a", "*"), lab("b", "m")) == [("m", "b")]


def test_model_list_is_cached_until_it_expires() -> None:
    time = 0.0
    transport = ScriptedTransport(listing("one"), listing("two"))
    catalog = ModelCatalog(Routes(Config(upstreams=[lab("a", "*")]), {}, {}), transport, lambda: time)

    async def ids() -> list[str]:
        return [model.id for model in (await catalog.list_models()).data]

    assert asyncio.run(ids()) == ["one"]
    time = model_catalog.LIST_LIFETIME
    assert asyncio.run(ids()) == ["one"]
    time = model_catalog.LIST_LIFETIME + 1
    assert asyncio.run(ids()) == ["two"]


def test_context_size_comes_from_configuration_then_upstream() -> None:
    """REQ-2: without either it is unknown."""
    rows = [{"id": "big", "context_length": 32768}, {"id": "small", "meta": {"n_ctx": 2048}}, {"id": "quiet"}]
    upstreams = [
        lab("told", "told-*"),
        msgspec.structs.replace(lab("set", "set-*"), context=4096),
        msgspec.structs.replace(lab("each", "each-*"), context={"each-1": 1000, "each-*": 2000}),
        msgspec.structs.replace(lab("some", "*"), context={"other": 1000}),
    ]
    transport = ScriptedTransport(ScriptedAnswer([msgspec.json.encode({"data": rows})], JSON))
    routes = Routes(Config(upstreams=upstreams), {}, {})
    catalog = ModelCatalog(routes, transport, lambda: 0.0)

    async def contexts() -> list[int | None]:
        return [
            await catalog.context_size(routes.find(name))
            for name in ("set-9", "each-1", "each-2", "other", "big", "small", "quiet", "x")
        ]

    assert asyncio.run(contexts()) == [4096, 1000, 2000, 1000, 32768, 2048, None, None]
    assert len(transport.asked) == 1


def test_context_size_of_a_single_model_server_needs_no_name_match() -> None:
    transport = ScriptedTransport(
        ScriptedAnswer([b'{"data":[{"id":"/models/x.gguf","meta":{"n_ctx_train":8192}}]}'], JSON)
    )
    routes = Routes(Config(upstreams=[lab("a", "*")]), {}, {})
    assert asyncio.run(ModelCatalog(routes, transport, lambda: 0.0).context_size(routes.find("anything"))) == 8192


def test_routed_models_are_listed_with_their_first_upstream() -> None:
    entry = ModelConfig(name="coder", targets=[TargetConfig(upstream="b", model="m2")])
    routes = Routes(Config(upstreams=[lab("a", "m1"), lab("b", "m2")], models=[entry]), {}, {})
    models = asyncio.run(ModelCatalog(routes, ScriptedTransport(), lambda: 0.0).list_models())
    assert [(model.id, model.owned_by) for model in models.data] == [("coder", "b"), ("m1", "a"), ("m2", "b")]
