"""Model servers on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from antiphon.cli import local_servers
from antiphon.cli.local_servers import LOCAL_SERVERS, find_local_servers
from antiphon.client import Model
from antiphon.profiles import load_profile
from antiphon.testing import ChatServer

pytestmark = pytest.mark.io


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A server at the address of the first kind; nobody answers at the others."""
    with ChatServer() as server:
        addresses = [server.base_url, *["http://127.0.0.1:1/v1"] * (len(LOCAL_SERVERS) - 1)]
        kinds = [replace(kind, base_url=url) for kind, url in zip(LOCAL_SERVERS, addresses, strict=True)]
        monkeypatch.setattr(local_servers, "LOCAL_SERVERS", kinds)
        yield server


def test_servers_that_answer_are_found(server: ChatServer) -> None:
    (found,) = find_local_servers({})
    assert (found.server.name, found.server.base_url) == ("ollama", server.base_url)
    assert found.models


def test_server_of_another_kind_is_not_found(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = next(kind for kind in LOCAL_SERVERS if kind.name == "vllm")
    monkeypatch.setattr(local_servers, "LOCAL_SERVERS", [replace(vllm, base_url=server.base_url)])
    assert find_local_servers({}) == []
    assert vllm.is_own_list([Model(id="m", owned_by="vllm")])


def test_every_kind_has_the_dialect_of_its_profile() -> None:
    for kind in LOCAL_SERVERS:
        assert load_profile(kind.profile).dialect == kind.dialect
