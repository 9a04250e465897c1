"""The list of local model servers."""

from __future__ import annotations

from urllib.parse import urlsplit

from antiphon.profiles import load_profile
from antiphon.profiles.local_servers import builtin_local_servers


def test_local_servers_have_the_dialect_of_their_profile_and_a_port_of_their_own() -> None:
    servers = builtin_local_servers()
    assert all(load_profile(server.profile).dialect == server.dialect for server in servers)
    assert {urlsplit(server.base_url).hostname for server in servers} == {"127.0.0.1"}
    assert len({urlsplit(server.base_url).port for server in servers}) == len(servers) == len({s.name for s in servers})
