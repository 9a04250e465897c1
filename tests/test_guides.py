"""The pages on adding a server, on access, on losses and on traces: their blocks are run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace
from tests.page_player import PATIENCE, Block, Player, blocks_of, reader
from tests.running import running, until
from tests.sources import REPO

from antiphon.config import parse_config
from antiphon.errors import ConfigError
from antiphon.testing import ChatServer, ResponsesServer

pytestmark = pytest.mark.io
SERVERS, ACCESS, LOSSES = (blocks_of(REPO / "docs" / f"{name}.md") for name in ("servers", "access", "losses"))
OLLAMA, OPENAI, CHAT = (block.text for block in SERVERS)
MAKE_KEY, KEYS = (block.text for block in ACCESS)

# docs/servers.md

ENVIRON = {"OPENAI_API_KEY": "key-of-openai", "LAB_KEY": "key-of-lab"}


@pytest.mark.parametrize(
    ("block", "server", "asked", "reached", "key"),
    [
        (OLLAMA, ChatServer, "llama3.2", "llama3.2", None),
        (OPENAI, ResponsesServer, "gpt-5", "gpt-5", "key-of-openai"),
        (CHAT, ChatServer, "qwen3-4b", "qwen3-4b", "key-of-lab"),
        (CHAT, ChatServer, "gpt-5.5", "qwen3-coder", "key-of-lab"),
    ],
    ids=["Ollama", "OpenAI", "chat", "chat, renamed"],
)
def test_configuration_block_serves_its_upstream(
    block: str, server: type[ChatServer] | type[ResponsesServer], asked: str, reached: str, key: str | None
) -> None:
    [written] = parse_config(block, "antiphon.toml", ENVIRON).upstreams
    with server() as upstream:
        here = block.replace(written.base_url, upstream.base_url)
        with running(parse_config(here, "antiphon.toml", ENVIRON), environ=ENVIRON) as gateway:
            whole = gateway.post({"model": asked, "input": "Say hello."})
            streamed = gateway.post({"model": asked, "input": "Say hello.", "stream": True})
        assert not upstream.refusals
        assert [received.json["model"] for received in upstream.received] == [reached] * 2
        assert {received.headers.get("authorization") for received in upstream.received} == {
            f"Bearer {key}" if key else None
        }
    assert whole.json()["status"] == "completed"
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_configuration_blocks_can_be_combined() -> None:
    config = parse_config(OPENAI + CHAT + OLLAMA, "antiphon.toml", ENVIRON)
    assert [upstream.name for upstream in config.upstreams] == ["openai", "lab", "ollama"]


# docs/access.md


def test_key_block_creates_a_working_key(tmp_path: Path) -> None:
    environ = Player(tmp_path, {"8080": "8080"}).environ
    printed = subprocess.run(["sh", "-e", "-c", MAKE_KEY], env=environ, capture_output=True, text=True, check=True)
    key, digest = printed.stdout.split()[:2]
    assert digest == sha256(key.encode()).hexdigest()
    config = parse_config(re.sub(r"[0-9a-f]{64}", digest, KEYS), "antiphon.toml", {})
    assert (config.server.host, [each.name for each in config.keys]) == ("0.0.0.0", ["alice"])
    here = replace(config, server=replace(config.server, host="127.0.0.1"))
    with running(here) as gateway:
        assert gateway.get("/v1/models").status_code == 401
        assert gateway.get("/v1/models", authorization=f"Bearer {key}").status_code == 200
        assert gateway.get("/v1/models", x_api_key=key).status_code == 200


def test_public_host_without_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="no keys"):
        parse_config(KEYS.partition("[[keys]]")[0], "antiphon.toml", {})


# docs/losses.md


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """A reader whose gateway has the embedded model."""
    with reader(tmp_path_factory.mktemp("reader")) as player:
        player.serve("antiphon serve --trace traces")
        yield player


def test_losses_blocks_show_a_loss_and_refuse_it(player: Player) -> None:
    lossy, shown, strict = LOSSES
    player.play(lossy)
    player.play(shown)
    player.play(strict)
    assert '"lossy_translation"' in player.output
    assert "tools[0]" in player.output


# docs/traces.md


def test_trace_commands_list_show_and_replay(player: Player) -> None:
    page = (REPO / "docs" / "traces.md").read_text(encoding="utf-8")
    commands = ["antiphon trace list", "antiphon trace show last --raw", "antiphon trace replay last"]
    assert "antiphon serve --trace traces\n" in page
    assert [command for command in commands if f"\n{command} " not in page] == []
    asked = {"model": "local", "input": "Say hello.", "max_output_tokens": 16, "stream": True}
    id = httpx2.post(f"{player.url}/v1/responses", json=asked, timeout=PATIENCE).headers["x-request-id"]
    until(lambda: any(id in file.name for file in (player.folder / "traces").glob("*.jsonl")))
    player.play(Block("", "sh", "antiphon trace list\nantiphon trace show last\nantiphon trace replay last\n"))
    assert player.output.count(id) >= 2
    assert '"input": "Say hello."' in player.output
    assert player.output.rstrip().endswith("data: [DONE]")
