"""The extension for VS Code. Its manifest is looked at here; what it does is tested by its own tests, in a stand-in for the editor,
before a gateway that runs. Those need npm, and `make test-vscode` runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running

from antiphon import fakes
from antiphon.config import KeyConfig
from antiphon.dialects.vscode.lines import DataPart, Done, ErrorLine, TextPart, ThinkingPart, ToolCallPart
from antiphon.dialects.vscode.request_in import ChoicesIn
from antiphon.fakes import Gate, MessagesServer, turn
from antiphon.fakes.script import Received
from antiphon.server.app import ROUTES

REPO = Path(__file__).resolve().parents[2]
EXTENSION = REPO / "integrations" / "vscode"
PAGE = (REPO / "docs" / "vscode.md").read_text(encoding="utf-8")
MANIFEST: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in sorted((EXTENSION / "src").glob("*.ts")))
KEY = "alice-key-that-nobody-may-see-0123456789"
SECONDS = 120

LOOKING = turn(
    fakes.reasoning("Hm."), fakes.text("Look", "ing."), fakes.tool_call("call_1", "look", '{"path":', '"a.py"}'), fakes.usage(5, 2)
)
LAST = turn(fakes.text("It is empty: ✓"), fakes.usage(5, 2))


def test_the_extension_asks_at_paths_that_there_are_and_nowhere_else() -> None:
    """A-8."""
    asked = set(re.findall(r'"(/v1/[^"]*)"', SOURCE))
    assert asked == {path for path in ROUTES if path.startswith("/v1/vscode/")}


def test_the_extension_knows_every_line_that_the_gateway_writes() -> None:
    """A-8, C-4."""
    lines = {str(line.__struct_config__.tag) for line in (TextPart, ThinkingPart, ToolCallPart, DataPart, Done, ErrorLine)}
    assert set(re.findall(r'readonly type: "(\w+)"', SOURCE)) == lines


def test_what_the_manifest_declares_is_what_the_source_registers() -> None:
    [provider] = MANIFEST["contributes"]["languageModelChatProviders"]
    [command] = MANIFEST["contributes"]["commands"]
    assert f'registerLanguageModelChatProvider("{provider["vendor"]}"' in SOURCE
    assert f'registerCommand("{command["command"]}"' in SOURCE
    assert provider["managementCommand"] == command["command"]
    assert MANIFEST["activationEvents"] == [f"onLanguageModelChatProvider:{provider['vendor']}"]
    settings = MANIFEST["contributes"]["configuration"]["properties"]
    assert set(settings) == {f"antiphon.{name}" for name in re.findall(r'configured\.get\("(\w+)"', SOURCE)}
    for name in settings:
        assert f"`{name}`" in PAGE


def test_the_choices_that_the_manifest_and_the_page_tell_of_are_those_there_are() -> None:
    """A-3, A-5, C-1."""
    told = MANIFEST["contributes"]["configuration"]["properties"]["antiphon.choices"]["description"]
    for name in ChoicesIn.__struct_encode_fields__:
        if not name.startswith("antiphon:"):
            assert name in told
            assert f"`{name}`" in PAGE


def test_its_tool_chain_is_pinned_and_no_lock_file_names_a_registry() -> None:
    for version in MANIFEST["devDependencies"].values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert "dependencies" not in MANIFEST
    assert not [file for file in EXTENSION.iterdir() if "lock" in file.name]
    types = MANIFEST["devDependencies"]["@types/vscode"]
    assert MANIFEST["engines"]["vscode"] == f"^{types}"


@pytest.mark.heavy
def test_the_extension_is_built_and_does_its_work_before_a_gateway() -> None:
    """A-1 … A-8, C-1, C-4: in a stand-in for the editor."""
    npm = shutil.which("npm")
    assert npm, "npm is not installed"
    assert (EXTENSION / "node_modules").exists(), "run `make test-vscode`"
    gate = Gate()

    def answer(received: Received) -> fakes.Reply:
        asked = received.json
        match asked["model"]:
            case "hangs":
                return turn(fakes.text("Hel"), fakes.wait(gate))
            case "breaks":
                return turn(fakes.text("Hel"), fakes.end("mid-chunk"))
            case _:
                return LAST if len(asked["messages"]) > 1 else LOOKING

    with MessagesServer(answer) as upstream:
        config = one_upstream(upstream.base_url, dialect="messages")
        named = replace(config.upstreams[0], models=["mock-1", "hangs", "breaks"])
        config = replace(config, upstreams=[named], keys=[KeyConfig(name="alice", env="ALICE")])
        try:
            with running(config, environ={"ALICE": KEY}) as gateway:
                _npm(npm, "run", "build", url=gateway.url)
                _npm(npm, "test", url=gateway.url)
        finally:
            gate.open()
        assert upstream.refusals == []
        turns = [received.json for received in upstream.received if received.path == "/v1/messages"]
    first, second = (asked for asked in turns if asked["model"] == "mock-1")
    assert first["system"] == [{"type": "text", "text": "You are an expert."}]
    assert [block["type"] for block in first["messages"][0]["content"]] == ["text", "image"]
    assert [block["type"] for block in second["messages"][1]["content"]] == ["thinking", "text", "text", "tool_use"]
    assert second["messages"][2]["content"][0]["content"] == 'empty\n{"lines":0}'


def _npm(npm: str, *command: str, url: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "ANTIPHON_URL": url, "ANTIPHON_KEY": KEY}
    done = subprocess.run([npm, *command], cwd=EXTENSION, env=environ, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
