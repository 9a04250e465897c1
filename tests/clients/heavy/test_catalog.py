"""Every client of the catalog, with every feature that it offers, over a strict server of every other API.

The outcome is written to `.clients/results.json`, from which `tests/clients/heavy/page.py` writes the table of
`docs/clients.md`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.heavy.agents import run_agent
from tests.clients.heavy.behind import CHAT, GEMINI, MESSAGES, RESPONSES, Behind
from tests.clients.heavy.catalog import CLIENTS, Client
from tests.clients.heavy.features import FEATURES, Expectation, feature_of, problems, reply_of_model
from tests.clients.heavy.programs import Result, run_driver
from tests.clients.heavy.results import record
from tests.clients.heavy.setups import write_setups
from tests.running import running

from antiphon import config

pytestmark = pytest.mark.heavy

SERVERS: dict[str, Behind] = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}
CELLS = [(client, upstream) for client in CLIENTS for upstream in client.upstreams]


def run_client(client: Client, folder: Path, gateway: str, features: list[str]) -> dict[str, Result]:
    if client.is_agent:
        return run_agent(client.driver, folder, gateway, features)
    environ = write_setups(client, folder, gateway, features)
    try:
        return run_driver(client.environment, client.driver, folder, features, environ)
    except AssertionError as failure:  # the driver itself failed, so every cell has this error
        return dict.fromkeys(features, Result(error=str(failure)[-4000:]))


@pytest.mark.parametrize(
    ("client", "upstream"), CELLS, ids=[f"{client.name.replace(' ', '-')}-{upstream}" for client, upstream in CELLS]
)
def test_client_uses_every_feature_that_it_offers(client: Client, upstream: str, tmp_path: Path) -> None:
    """API-6, F-4, RSN-2, REQ-1: the results that the client reports, and the requests that a strict server gets."""
    behind = SERVERS[upstream]
    features = [feature for feature in FEATURES if feature not in client.not_offered]
    with behind.serve(lambda received: reply_of_model(behind, received, client.use, client.style)) as server:
        served = config.UpstreamConfig(
            name="lab", dialect=behind.dialect, base_url=server.base_url, models=["*"], profile=behind.profile
        )
        store = config.StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
        with running(config.Config(upstreams=[served], store=store)) as gateway:
            results = run_client(client, tmp_path, gateway.url, features)
            log = gateway.log
        refusals = [refusal.body for refusal in server.refusals]
        received = [each for each in server.received if each.method == "POST"]
    expected = Expectation(
        upstream in client.shows_reasoning,
        upstream in client.returns_reasoning,
        client.marks_failures,
        client.style,
        client.shows_pieces,
    )
    found = {
        feature: problems(
            feature, results[feature], [each for each in received if feature_of(each) == feature], behind, expected
        )
        for feature in features
    }
    record(client, upstream, found)
    failed = {feature: texts for feature, texts in found.items() if texts}
    assert not failed, "\n".join(f"{feature}: {text}" for feature, texts in failed.items() for text in texts)
    assert refusals == [], log
