"""The table of `docs/clients.md` belongs to the recorded run of the catalog, and every client of the catalog has a set-up
on the page."""

from __future__ import annotations

import subprocess

import pytest
from tests.clients.blocks import DOCS
from tests.clients.heavy.catalog import CLIENTS, Client
from tests.clients.heavy.features import FEATURES
from tests.clients.heavy.page import COPY, PAGE, page_with
from tests.clients.heavy.results import read_results
from tests.clients.heavy.setups import DOCUMENTED_URL, section_of

RESULTS = read_results(COPY)


def test_table_of_the_page_belongs_to_the_recorded_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(RESULTS, page) == page, "run python -m tests.clients.heavy.page after make test-clients"


def test_recorded_run_has_every_client_of_the_catalog() -> None:
    assert list(RESULTS) == [client.name for client in CLIENTS]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_feature_works_with_two_other_apis_or_is_not_offered(client: Client) -> None:
    outcome = RESULTS[client.name]
    assert outcome.fails == {}
    assert {*outcome.works, *client.not_offered} == set(FEATURES)
    for upstreams in outcome.works.values():
        assert upstreams == sorted(client.upstreams)
        assert len(upstreams) >= 2


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_page_has_the_set_up_of_every_client(client: Client) -> None:
    assert DOCUMENTED_URL in section_of(client.heading)


@pytest.mark.io
def test_make_target_installs_the_environment_of_every_client() -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "test-clients"]
    plan = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=True).stdout
    python_environments = {client.environment for client in CLIENTS} - {"node"}
    assert {name for name in python_environments if f"touch .clients/python/{name}/installed" in plan} == (
        python_environments
    )
    packages = {package for client in CLIENTS if client.environment == "node" for package in client.packages}
    [install] = [line for line in plan.splitlines() if line.startswith("npm install --prefix .clients")]
    assert {package for package in packages if f" {package}@" in install} == packages
