"""The extension for VS Code: its manifest, its package, and its own tests, which use a stand-in for VS Code and a
running gateway. The heavy tests need npm; `make test-extension` runs them. `test_vscode_editor.py` tests the extension
in the real VS Code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running

from antiphon import testing
from antiphon.api.routes import ROUTES
from antiphon.config import KeyConfig, UpstreamConfig
from antiphon.dialects.vscode.wire import (
    ContentChoicesIn,
    DataPart,
    DoneLine,
    ErrorLine,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from antiphon.protocol.base import EXTRA_NAME
from antiphon.testing import ChatServer, Gate, MessagesServer, turn
from antiphon.testing.script import ReceivedRequest

pytestmark = pytest.mark.without_coverage
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


def test_extension_declares_every_line_type_of_the_gateway() -> None:
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
    assert f'"{command["category"]}: {command["title"]}"' in SOURCE  # the name of the command in error messages
    settings = contributes["configuration"]["properties"]
    assert set(settings) == {f"antiphon.{name}" for name in re.findall(r'configuration\.get\("(\w+)"', SOURCE)}
    for name in (*settings, f"@{participant['name']}", f"{command['category']}: {command['title']}"):
        assert f"`{name}`" in PAGE or f"*{name}*" in PAGE


def test_workspaces_cannot_set_the_address() -> None:
    assert MANIFEST["contributes"]["configuration"]["properties"]["antiphon.url"]["scope"] == "application"


def test_package_has_no_links_to_files_outside_of_it() -> None:
    assert not re.findall(r"\]\((?!https?://)", (EXTENSION / "README.md").read_text(encoding="utf-8"))
    assert "repository" not in MANIFEST
    assert MANIFEST["license"] == "Apache-2.0"


def test_manifest_and_page_describe_every_choice() -> None:
    """A-3, A-5, C-1."""
    description = MANIFEST["contributes"]["configuration"]["properties"]["antiphon.choices"]["description"]
    for name in ContentChoicesIn.__struct_encode_fields__:
        if name != EXTRA_NAME:
            assert name in description
            assert f"`{name}`" in PAGE


def test_page_shows_the_screenshots_that_the_editor_tests_make() -> None:
    source = (REPO / "tests" / "integrations" / "test_vscode_editor.py").read_text(encoding="utf-8")
    made = set(re.findall(r'picture\(\w+\.editor, "([\w-]+)"\)', source))
    assert made == {file.stem for file in (REPO / "docs" / "images").glob("vscode-*.png")}
    assert made == set(re.findall(r"!\[[^\]]+\]\(images/([\w-]+)\.png\)", PAGE))


@pytest.mark.io
@pytest.mark.parametrize("has_node", [True, False])
def test_ci_runs_the_extension_tests_if_node_is_installed_and_says_so_if_not(tmp_path: Path, *, has_node: bool) -> None:
    """A copy of .ci/run, with programs that only print their arguments."""
    for name in (".ci/run", "tools/other_python.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    for name in ("make", "node", "npm") if has_node else ("make",):
        _program(tmp_path / "bin" / name, f'echo "{name} $@"')
    done = _run_alone([tmp_path / ".ci" / "run"], tmp_path / "bin", PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert ("make test-extension" in done.stdout.splitlines()) == has_node
    assert ("make test-extension was not run: node and npm are not installed" in done.stdout) != has_node


@pytest.mark.io
def test_editor_tests_name_missing_debian_packages_and_stop(tmp_path: Path) -> None:
    """Nothing is installed and no test is skipped."""
    for name in ("npm", "g++", "make", "python3"):
        _program(tmp_path / "bin" / name, "exit 1")
    _program(tmp_path / "bin" / "dpkg-query", '[ "$4" = libx11-dev ] && echo "install ok installed"')
    done = _run_alone(
        [REPO / "tests" / "integrations" / "editor" / "install.sh", tmp_path / "editor"], tmp_path / "bin"
    )
    assert done.returncode == 2
    assert "apt-get install pkg-config chromium libkrb5-dev libsecret-1-dev libxkbfile-dev\n" in done.stderr
    assert not (tmp_path / "editor").exists()


def test_versions_of_the_tools_are_pinned_and_the_lock_file_has_them() -> None:
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for name, version in MANIFEST["devDependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert lock[f"node_modules/{name}"]["version"] == version
    assert lock[""]["devDependencies"] == MANIFEST["devDependencies"]
    assert "dependencies" not in MANIFEST
    assert "npm ci\n" in PAGE  # installs what the lock file says
    types = MANIFEST["devDependencies"]["@types/vscode"]
    assert MANIFEST["engines"]["vscode"] == f"^{types}"


@pytest.mark.heavy
def test_extension_works_with_a_gateway_in_a_stand_in_for_vs_code() -> None:
    """A-1 … A-8, C-1, C-4."""
    npm = _npm()
    gate = Gate()

    def answer(received: ReceivedRequest) -> testing.Reply:
        request = received.json
        match request["model"]:
            case "hangs":
                return turn(testing.text("Hel"), testing.wait(gate))
            case "breaks":
                return turn(testing.text("Hel"), testing.end("mid-chunk"))
            case _:
                return LAST if len(request["messages"]) > 1 else LOOKING

    with MessagesServer(answer) as upstream, ChatServer() as echo:
        config = one_upstream(upstream.base_url, dialect="messages")
        scripted = replace(config.upstreams[0], models=["mock-1", "hangs", "breaks"])
        echoing = UpstreamConfig(name="echo", dialect="chat", base_url=echo.base_url, models=["echo"])
        config = replace(config, upstreams=[scripted, echoing], keys=[KeyConfig(name="alice", env="ALICE")])
        try:
            with running(config, environ={"ALICE": KEY}) as gateway:
                _run(npm, "run", "build", url=gateway.url)
                _run(npm, "test", url=gateway.url)
                lossy = [line for line in gateway.log if line.get("losses")]
        finally:
            gate.open()
        assert upstream.refusals == echo.refusals == []
        assert lossy == []
        requests = [received.json for received in upstream.received if received.path == "/v1/messages"]
    first, second, participant_first, participant_second, *_ = (
        request for request in requests if request["model"] == "mock-1"
    )
    assert first["temperature"] == 0
    [tool] = first["tools"]
    assert (tool["name"], tool["description"]) == ("look", "The tool look.")
    assert tool["input_schema"]["properties"] == {"path": {"type": "string"}}
    assert first["system"] == [{"type": "text", "text": "You are an expert."}]
    assert [block["type"] for block in first["messages"][0]["content"]] == ["text", "image"]
    assert [block["type"] for block in second["messages"][1]["content"]] == ["thinking", "text", "text", "tool_use"]
    [text, image] = second["messages"][2]["content"][0]["content"]
    assert text == {"type": "text", "text": 'empty\n{"lines":0}\nleaf'}
    assert image["source"]["data"] == "iVBORw=="
    assert len(participant_first["messages"]) == 1
    assert [block["type"] for block in participant_second["messages"][1]["content"]] == [
        "thinking",
        "text",
        "text",
        "tool_use",
    ]


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
    """Runs an npm script without the npm settings of the user, and returns its output."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "npm_config_userconfig": os.devnull}
    environ |= {"ANTIPHON_URL": url, "ANTIPHON_KEY": KEY}
    done = subprocess.run(
        [npm, *command],
        cwd=EXTENSION,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


def _program(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    path.chmod(0o755)


def _run_alone(command: list[Path], programs: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with only these programs, and the ordinary tools that the scripts use, on its PATH."""
    for name in ("bash", "dirname", "grep"):
        path = shutil.which(name)
        assert path
        (programs / name).symlink_to(path)
    environ = {"PATH": str(programs), **environ}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
