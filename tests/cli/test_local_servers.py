"""Model servers on this machine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from antiphon.cli.local_servers import find_local_servers
from antiphon.profiles.local_servers import builtin_local_servers
from antiphon.testing import ChatServer

pytestmark = pytest.mark.io
KIND = builtin_local_servers()[0]


def test_only_servers_that_answer_are_found() -> None:
    with ChatServer() as server:
        kinds = [replace(KIND, base_url=server.base_url), replace(KIND, base_url="http://127.0.0.1:1/v1")]
        (found,) = find_local_servers({}, kinds)
    assert found.server == kinds[0]
    assert found.models


def test_server_is_recognized_by_the_owner_of_its_models() -> None:
    with ChatServer() as server:
        kind = replace(KIND, base_url=server.base_url)
        assert find_local_servers({}, [replace(kind, owner="vllm")]) == []
        assert find_local_servers({}, [replace(kind, owner="fake")])


def test_builtin_servers_are_asked_by_default() -> None:
    """Whatever runs on this machine: an answer is of a known kind."""
    assert {found.server.name for found in find_local_servers({})} <= {kind.name for kind in builtin_local_servers()}
