"""The database file is deleted or truncated under a running gateway, timed: storing turns are refused within 5 s, here
with a factor of three."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.ops.served_process import gateway
from tests.running import one_upstream, until

from antiphon.config import StoreConfig
from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.timed]
BOUND = 15.0  # seconds; three times the documented five


def test_deleted_database_file_is_noticed_within_five_seconds(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    with ChatServer() as upstream:
        config = replace(one_upstream(upstream.base_url), store=StoreConfig(url=f"sqlite:///{path}"))
        with gateway(config, workers=2) as served:
            until(lambda: served.post().status_code == 200)
            path.unlink()
            begin = time.monotonic()
            until(lambda: served.post().status_code == 503)
            until(lambda: any(line["event"] == "the store cannot be used" for line in served.log))
            assert time.monotonic() - begin < BOUND


@pytest.mark.parametrize("is_whole", [True, False])
def test_truncated_database_file_is_noticed_within_five_seconds(tmp_path: Path, is_whole: bool) -> None:
    """Truncated to nothing, or by a page; nothing is asked meanwhile."""
    path = tmp_path / "antiphon.db"
    with ChatServer() as upstream:
        config = replace(one_upstream(upstream.base_url), store=StoreConfig(url=f"sqlite:///{path}"))
        with gateway(config, workers=1) as served:
            until(lambda: served.post().status_code == 200)
            os.truncate(path, 0 if is_whole else path.stat().st_size - 4096)
            begin = time.monotonic()
            until(lambda: served.get("/readyz").status_code == 503)
            took = time.monotonic() - begin
            assert served.post().status_code == 503
    print(f"noticed after {took:.1f} s")
    assert took < BOUND
