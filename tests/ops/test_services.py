"""The services of a process: a store that cannot be used is noticed without a request, and logged once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running, until

from antiphon.config import StoreConfig
from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda path: path.rename(path.with_suffix(".away")), "deleted"),
        (lambda path: os.truncate(path, 0), "truncated"),
    ],
)
def test_damaged_database_file_is_noticed_and_refuses_storing_turns(
    tmp_path: Path, damage: Callable[[Path], None], word: str
) -> None:
    path = tmp_path / "antiphon.db"
    with ChatServer() as upstream:
        config = replace(one_upstream(upstream.base_url), store=StoreConfig(url=f"sqlite:///{path}"))
        with running(config) as gateway:
            assert gateway.post({"model": "m", "input": "Hello"}).status_code == 200
            damage(path)
            until(lambda: gateway.get("/readyz").status_code == 503)
            assert word in gateway.get("/readyz").text
            refused = gateway.post({"model": "m", "input": "Hello"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable")
            assert gateway.post({"model": "m", "input": "Hello", "store": False}).status_code == 200
            lines = [line for line in gateway.log if line["event"] == "the store cannot be used"]
            assert [word in line["why"] for line in lines] == [True]
            if word == "deleted":
                path.with_suffix(".away").rename(path)
                until(lambda: gateway.get("/readyz").status_code == 200)
                assert gateway.post({"model": "m", "input": "Hello"}).status_code == 200
