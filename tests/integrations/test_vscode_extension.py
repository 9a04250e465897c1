"""The extension for VS Code: its manifest, and its own tests, which run in a stand-in for the editor before a running gateway.
Those need npm, and `make test-extension` runs them. The extension in the real editor is tested in `test_vscode_editor.py`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running

from antiphon import testing
from antiphon.api.app import ROUTES
from antiphon.config import KeyConfig, UpstreamConfig
from antiphon.dialects.vscode.request_in import ChoicesIn
from antiphon.dialects.vscode.response_lines import DataPart, DoneLine, ErrorLine, TextPart, ThinkingPart, ToolCallPart
from antiphon.testing import ChatServer, Gate, MessagesServer, turn
from antiphon.testing.script import ReceivedRequest

REPO = Path(__file__).resolve().parents[2]
EXTENSION = REPO / "integrations" / "vscode"
PAGE = (REPO / "docs" / "vscode.md").read_text(encoding="utf-8")
MANIFEST: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in sorted((EXTENSION / "src").glob("*.ts")))
KEY = "alice-key-that-nobody-may-see-0123456789"
SECONDS = 120

LOOKING = turn(
    testing.reasoning("Hm."),
    testing.text("Look", "ing."),
    testing.tool_call("call_1", "look", '{"path":', '"a.py"}'),
    testing.usage(5, 2),
)
LAST = turn(testing.text("It is empty: ✓"), testing.usage(5, 2))


def test_extension_requests_existing_paths_only() -> None:
    """A-8."""
    requested = set(re.findall(r'"(/v1/[^"]*)"', SOURCE))
    assert requested == {"/v1/vscode/models", "/v1/vscode/chat"} <= set(ROUTES)


def test_the_extension_knows_every_line_that_the_gateway_writes() -> None:
    """A-8, C-4."""
    lines = {
        str(line.__struct_config__.tag)
        for line in (TextPart, ThinkingPart, ToolCallPart, DataPart, DoneLine, ErrorLine)
    }
    source = (EXTENSION / "src" / "gateway.ts").read_text(encoding="utf-8")
    assert set(re.findall(r'readonly type: "(\w+)"', source)) == lines


def test_manifest_declares_what_the_source_registers() -> None:
    contributes = MANIFEST["contributes"]
    [provider] = contributes["languageModelChatProviders"]
    [command] = contributes["commands"]
    [participant] = contributes["chatParticipants"]
    assert f'registerLanguageModelChatProvider("{provider["vendor"]}"' in SOURCE
    assert f'registerCommand("{command["command"]}"' in SOURCE
    assert f'createChatParticipant("{participant["id"]}"' in SOURCE
    assert f'"{command["category"]}: {command["title"]}"' in SOURCE  # by which errors name it
    settings = contributes["configuration"]["properties"]
    assert set(settings) == {f"antiphon.{name}" for name in re.findall(r'configured\.get\("(\w+)"', SOURCE)}
    for name in (*settings, f"@{participant['name']}", f"{command['category']}: {command['title']}"):
        assert f"`{name}`" in PAGE or f"*{name}*" in PAGE


def test_manifest_keeps_the_address_out_of_the_reach_of_workspaces() -> None:
    assert MANIFEST["contributes"]["configuration"]["properties"]["antiphon.url"]["scope"] == "application"


def test_package_links_to_nothing_outside_of_it() -> None:
    assert not re.findall(r"\]\((?!https?://)", (EXTENSION / "README.md").read_text(encoding="utf-8"))
    assert "repository" not in MANIFEST
    assert MANIFEST["license"] == "Apache-2.0"


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
    npm = _npm()
    gate = Gate()

    def answer(received: ReceivedRequest) -> testing.Reply:
        asked = received.json
        match asked["model"]:
            case "hangs":
                return turn(testing.text("Hel"), testing.wait(gate))
            case "breaks":
                return turn(testing.text("Hel"), testing.end("mid-chunk"))
            case _:
                return LAST if len(asked["messages"]) > 1 else LOOKING

    with MessagesServer(answer) as upstream, ChatServer() as echo:
        config = one_upstream(upstream.base_url, dialect="messages")
        named = replace(config.upstreams[0], models=["mock-1", "hangs", "breaks"])
        echoing = UpstreamConfig(name="echo", dialect="chat", base_url=echo.base_url, models=["echo"])
        config = replace(config, upstreams=[named, echoing], keys=[KeyConfig(name="alice", env="ALICE")])
        try:
            with running(config, environ={"ALICE": KEY}) as gateway:
                _run(npm, "run", "build", url=gateway.url)
                _run(npm, "test", url=gateway.url)
                lossy = [line for line in gateway.log if line.get("losses")]
        finally:
            gate.open()
        assert upstream.refusals == echo.refusals == []
        assert lossy == []
        turns = [received.json for received in upstream.received if received.path == "/v1/messages"]
    first, second, *_ = (asked for asked in turns if asked["model"] == "mock-1")
    assert first["temperature"] == 0
    assert first["system"] == [{"type": "text", "text": "You are an expert."}]
    assert [block["type"] for block in first["messages"][0]["content"]] == ["text", "image"]
    assert [block["type"] for block in second["messages"][1]["content"]] == ["thinking", "text", "text", "tool_use"]
    [text, image] = second["messages"][2]["content"][0]["content"]
    assert text == {"type": "text", "text": 'empty\n{"lines":0}\nleaf'}
    assert image["source"]["data"] == "iVBORw=="


@pytest.mark.heavy
def test_extension_is_packed_without_a_question_error_or_warning() -> None:
    output = _run(_npm(), "run", "package", url="")
    assert not re.search(r"(?i)warn|error|\?", output), output
    with zipfile.ZipFile(EXTENSION / "antiphon-models.vsix") as package:
        names = {name.removeprefix("extension/") for name in package.namelist()}
        manifest = package.read("extension.vsixmanifest").decode()
    scripts = {f"out/src/{file.stem}.js" for file in (EXTENSION / "src").glob("*.ts")}
    readme = "README.md".lower()  # as vsce names it in the package
    assert names == {"[Content_Types].xml", "extension.vsixmanifest", "package.json", readme, "LICENSE.txt", *scripts}
    assert "<License>extension/LICENSE.txt</License>" in manifest


def _npm() -> str:
    npm = shutil.which("npm")
    assert npm, "npm is not installed"
    assert (EXTENSION / "node_modules" / "installed").exists(), "run `make test-extension`"
    return npm


def _run(npm: str, *command: str, url: str) -> str:
    """Runs an npm script without the settings of this machine's user, and returns all that it prints."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "npm_config_userconfig": os.devnull}
    environ |= {"ANTIPHON_URL": url, "ANTIPHON_KEY": KEY}
    done = subprocess.run(
        [npm, *command], cwd=EXTENSION, env=environ, capture_output=True, timeout=SECONDS, check=False
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output
