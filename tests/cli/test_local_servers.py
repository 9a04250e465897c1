"""Model servers on this machine."""

from __future__ import annotations

import socket

import pytest
from msgspec.structs import replace

from antiphon.cli import local_servers
from antiphon.cli.local_servers import ServerSearch, find_local_servers
from antiphon.profiles.local_servers import builtin_local_servers
from antiphon.testing import ChatServer

pytestmark = pytest.mark.io
KIND = builtin_local_servers()[0]


def test_only_servers_that_answer_are_found() -> None:
    with ChatServer() as server:
        kinds = [replace(KIND, base_url=server.base_url), replace(KIND, base_url="http://127.0.0.1:1/v1")]
        search = find_local_servers({}, kinds)
    (answering,) = search.answering
    assert answering.server == kinds[0]
    assert answering.models
    assert search.silent == []


def test_server_that_does_not_answer_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_servers.ANSWER_LIMIT <= 2
    monkeypatch.setattr(local_servers, "ANSWER_LIMIT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kind = replace(KIND, base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        assert find_local_servers({}, [kind]) == ServerSearch([], [kind])


def test_server_is_recognized_by_the_owner_of_its_models() -> None:
    with ChatServer() as server:
        kind = replace(KIND, base_url=server.base_url)
        assert find_local_servers({}, [replace(kind, owner="vllm")]).answering == []
        assert find_local_servers({}, [replace(kind, owner="fake")]).answering


def test_builtin_servers_are_asked_by_default() -> None:
    """Whatever runs on this machine: an answer is of a known kind."""
    assert {found.server.name for found in find_local_servers({}).answering} <= {
        kind.name for kind in builtin_local_servers()
    }
