"""`tests/faults/test_storage.py` runs a few rounds of kills; these tests check what the rounds would detect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import httpx2
import pytest
from msgspec.structs import replace
from soak.kills import Answer, Round, Seen
from tests.running import one_upstream, running

from antiphon.config import StoreConfig
from antiphon.testing import ChatServer

pytestmark = pytest.mark.without_coverage


@pytest.mark.io
def test_judge_reports_missing_changed_and_broken_responses(tmp_path: Path) -> None:
    config = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    with ChatServer() as upstream, running(replace(one_upstream(upstream.base_url), store=config)) as gateway:
        first, other = (gateway.post({"model": "m", "input": "Hello."}).json() for _ in range(2))
        second = gateway.post({"model": "m", "input": "And?", "previous_response_id": first["id"]}).json()
        seen = [Seen(first, None), Seen(second, first["id"])]
        judge = Round(gateway.port, Random(0))
        assert asyncio.run(judge.check(seen)) == []
        assert len(upstream.received) == 4  # one continues both
        (never,) = asyncio.run(judge.check([Seen({"id": "resp_never"}, None)]))
        assert never.startswith("resp_never: 404 ")
        (changed,) = asyncio.run(judge.check([Seen({**other, "status": "failed"}, None)]))
        assert changed.startswith(f"{other['id']}: 200 ")
        with httpx2.Client() as client:
            client.delete(f"{gateway.url}/v1/responses/{first['id']}")
        (hollow,) = asyncio.run(judge.check([Seen(second, first["id"])]))
        assert hollow.startswith(f"{second['id']} cannot be continued: 400 ")


def test_answer_is_complete_once_its_last_event_arrived() -> None:
    data = b'event: response.completed\ndata: {"response":{"id":"r"}}'
    assert Answer(200, data + b"\n\n", is_whole=False).response == {"id": "r"}
    assert Answer(200, data, is_whole=False).response is None
    assert Answer(200, b'{"id":"r"}', is_whole=True).response == {"id": "r"}
    assert Answer(200, b'{"id":"r"}', is_whole=False).response is None
    assert Answer(500, b'{"error":{}}', is_whole=True).response is None
