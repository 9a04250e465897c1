"""Text that keeps a regular expression busy, from clients without a key and from upstreams, does not block other
requests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, gateway_process, health_prober

from antiphon import testing
from antiphon.testing import ChatServer

pytestmark = pytest.mark.timed

SOON = 0.1  # seconds that `/health` may take on an idle machine
KEYS = f'[[keys]]\nname = "alice"\nsha256 = "{sha256(b"alice-key-0123456789").hexdigest()}"'
WORDS = ["a-", "key-", "eyJaaaaaa-", "[:::::::"]


@pytest.mark.parametrize("word", WORDS)
def test_long_path_without_a_key_does_not_block_the_gateway(tmp_path: Path, word: str) -> None:
    """16 KB in a path, before the key is checked: answered, and logged."""
    path = "/v1/" + (word * 16_384)[:16_384]
    with gateway_process(tmp_path, "http://127.0.0.1:1/v1", tables=KEYS) as gateway:
        with health_prober(gateway) as health:
            for _ in range(3):
                answer = gateway.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
                assert answer.startswith(b"HTTP/1.1 40")
    print(f"worst /health {health.worst_seconds * 1000:.0f} ms of {health.probes}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * SOON


@pytest.mark.parametrize("word", WORDS)
def test_long_upstream_error_does_not_block_the_gateway(tmp_path: Path, word: str) -> None:
    """A quarter of a megabyte in the message of an error, the largest size of an error body."""
    with ChatServer([testing.error(400, (word * 250_000)[:250_000])] * 3) as upstream:
        with gateway_process(tmp_path, upstream.base_url) as gateway, health_prober(gateway) as health:
            for _ in range(3):
                assert gateway.post({"model": "mock-1", "input": "Hi"}).status_code == 400
    print(f"worst /health {health.worst_seconds * 1000:.0f} ms of {health.probes}")
    assert health.worst_seconds < LOAD_FACTOR * SOON


@pytest.mark.parametrize("word", WORDS)
def test_long_model_name_does_not_block_the_gateway(tmp_path: Path, word: str) -> None:
    """A megabyte in a name that is shown, logged and counted."""
    with ChatServer([testing.error(404, "no such model")] * 3) as upstream:
        with gateway_process(tmp_path, upstream.base_url) as gateway, health_prober(gateway) as health:
            for _ in range(3):
                assert gateway.post({"model": (word * 1_000_000)[:1_000_000], "input": "Hi"}).status_code == 404
    print(f"worst /health {health.worst_seconds * 1000:.0f} ms of {health.probes}")
    assert health.worst_seconds < LOAD_FACTOR * SOON
