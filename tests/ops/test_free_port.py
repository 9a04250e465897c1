"""Free ports."""

from __future__ import annotations

import socket

import pytest

from antiphon.ops.free_port import is_port_free

pytestmark = pytest.mark.io


def test_port_is_free_unless_somebody_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_port_free(port)
    assert is_port_free(port)
