"""Agents loaded by name, mounted into another server, and served from the command line in their own process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from antiphon.config import Config, KeyConfig, StoreConfig
from antiphon.dialects.common.server_turn import turn_url
from antiphon.errors import ConfigError
from antiphon.gateway.routes import Routes
from antiphon.producer import Agent, Turn, agent
from antiphon.producer.serving import agent_upstream, load_agent, transport_opener
from antiphon.upstream.transport import UpstreamResponse

pytestmark = pytest.mark.without_coverage
MODULE = """
from antiphon.producer import Turn, agent

@agent(model="hello")
async def hello(turn: Turn) -> None:
    async with turn.message() as out:
        await out.write(f"Hello, {turn.text}.")

async def plain(turn: Turn) -> None:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module that no other test imports."""
    (tmp_path / "lab_agents.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("lab_agents", None)


def test_load_agent_imports_by_module_and_name(folder: Path) -> None:
    loaded = load_agent("lab_agents:hello", str(folder))
    assert isinstance(loaded, Agent)
    assert loaded is load_agent("lab_agents:hello", str(folder))
    upstream = agent_upstream("lab_agents:hello", loaded)
    assert (upstream.name, upstream.models, upstream.agent) == ("hello", ["hello"], "lab_agents:hello")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("lab_agents", "expected a module and the name of an agent in it"),
        ("nowhere:hello", "no module 'nowhere', neither in"),
        ("lab_agents:goodbye", "has no attribute 'goodbye'"),
        ("lab_agents:plain", "put @agent"),
    ],
)
def test_load_agent_refuses_invalid_names_with_a_remedy(spec: str, expected: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_agent(spec, str(folder))


def test_configured_agents_are_loaded_in_each_process(folder: Path) -> None:
    config = Config(upstreams=[agent_upstream("lab_agents:hello", load_agent("lab_agents:hello", str(folder)))])
    (upstream,) = Routes(config, {}, {}).upstreams

    async def ask() -> UpstreamResponse:
        transport = transport_opener(config, str(folder))({})
        url = turn_url(upstream.server_dialect, upstream.base_url, "hello", streams=True)
        answer = await transport.send("POST", url, {}, b'{"input":"world"}', upstream.timeouts)
        assert b"Hello, world." in b"".join([piece async for piece in answer.pieces()])
        await transport.close()
        return answer

    assert asyncio.run(ask()).status == 200
    assert upstream.timeouts.total == 86_400


@agent(model="mine")
async def mine(turn: Turn) -> None:
    async with turn.message() as out:
        await out.write("Here.")


def ask(app: Any, path: str, root: str = "", **headers: str) -> httpx2.Response:
    async def asking() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app, root_path=root)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(path, json={"model": "mine", "input": "Hi"}, headers=headers)

    return asyncio.run(asking())


@pytest.mark.parametrize("root", ["", "/agents"])
def test_agent_can_be_mounted_into_another_server(root: str) -> None:
    """F-5: at the root or under a path."""
    answer = ask(mine.asgi(), f"{root}/v1/responses", root)
    assert answer.json()["output"][0]["content"][0]["text"] == "Here."
    assert answer.json()["store"] is False


def test_mounted_agent_requires_the_keys_of_its_configuration() -> None:
    alice = KeyConfig(name="alice", sha256=sha256(b"secret").hexdigest())
    app = mine.asgi(Config(keys=[alice], store=StoreConfig(url="off")))
    assert ask(app, "/v1/responses").status_code == 401
    assert ask(app, "/v1/responses", authorization="Bearer secret").status_code == 200


@pytest.mark.io
@pytest.mark.parametrize("workers", [1, 2])
def test_serve_command_serves_an_agent(workers: int, folder: Path) -> None:
    """F-5: `antiphon serve --agent module:name`, from the folder of the module; with several processes too."""
    (folder / "antiphon.toml").write_text(
        f'[server]\nworkers = {workers}\n[store]\nurl = "off"\n[[upstreams]]\nname = "also"\ndialect = "responses"\n'
        'agent = "lab_agents:hello"\nmodels = ["also"]\n'
    )
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--agent", "lab_agents:hello"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().split()[-1]
            for model in ("hello", "also"):
                answer = httpx2.post(f"{url}/responses", json={"model": model, "input": "world"}, timeout=60)
                assert msgspec.json.decode(answer.content)["output"][0]["content"][0]["text"] == "Hello, world."
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
