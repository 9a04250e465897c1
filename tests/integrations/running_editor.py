"""Runs a real VS Code: code-server on a free loopback port, a browser that shows it, and an extension that calls its
models.

`make test-vscode` installs the programs into `.editor`. All files of the editor are in a folder of the test, and all processes end
with the test.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.running import until

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent / "editor"
INSTALLED = REPO / ".editor"
NODE = INSTALLED / "node" / "node_modules" / "node" / "bin" / "node"
CODE_SERVER = INSTALLED / "code-server" / "node_modules" / "code-server" / "out" / "node" / "entry.js"
SECONDS = 180  # timeout for every action of the editor, on a busy machine
VENDOR = "antiphon"


class EditorError(Exception):
    """An error of the editor, or of an extension in it."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.name = error["name"]
        self.code = error["code"]


class Editor:
    """The editor as a test uses it: through the test extension, and through its window."""

    def __init__(self, address: str, user: subprocess.Popen[str], port_file: Path) -> None:
        self._address = address
        self._user = user
        self._port_file = port_file
        self._failures = 0

    def load(self) -> None:
        """Loads or reloads the window, which restarts the extensions."""
        self._port_file.unlink(missing_ok=True)
        self.user("open", self._address)
        until(self._port_file.exists, SECONDS)

    def models(self, vendor: str = VENDOR) -> list[dict[str, Any]]:
        """Waits until an extension can select models, and returns them."""
        lists: list[list[dict[str, Any]]] = []

        def is_listed() -> bool:
            lists.append(self.extension("models", vendor=vendor))
            return bool(lists[-1])

        until(is_listed, SECONDS)
        return lists[-1]

    def ask(self, model: str, messages: Sequence[Any], *, vendor: str = VENDOR, **details: Any) -> list[dict[str, Any]]:
        """Sends a request from the test extension and returns the parts of the response."""
        details.setdefault("options", {})
        answer: list[dict[str, Any]] = self.extension("ask", vendor=vendor, model=model, messages=messages, **details)
        return answer

    def extension(self, action: str, **details: Any) -> Any:
        """Runs an action in the test extension and returns its result."""
        url = f"http://127.0.0.1:{self._port_file.read_text()}/"
        body = json.dumps({"action": action, **details}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=SECONDS) as response:
            outcome = json.loads(response.read())
        if error := outcome.get("error"):
            raise EditorError(error)
        return outcome["result"]

    def user(self, action: str, *args: Any) -> Any:
        """Runs an action of the user at the window and returns its result."""
        assert self._user.stdin
        assert self._user.stdout
        self._user.stdin.write(json.dumps({"action": action, "args": args}) + "\n")
        self._user.stdin.flush()
        outcome = json.loads(self._user.stdout.readline())
        assert "error" not in outcome, f"{action}{args}: {outcome['error']}\n{self._screen()}"
        return outcome["result"]

    def _screen(self) -> str:
        """Saves a screenshot for the failure message, and returns its path."""
        self._failures += 1
        path = INSTALLED / f"failure-{self._failures}.png"
        assert self._user.stdin
        assert self._user.stdout
        self._user.stdin.write(json.dumps({"action": "screenshot", "args": [str(path)]}) + "\n")
        self._user.stdin.flush()
        self._user.stdout.readline()
        return f"screenshot: {path}"


def screenshots() -> Path:
    """The folder of the screenshots. With ANTIPHON_SCREENSHOTS=docs/images a run renews those of the documentation."""
    folder = REPO / os.environ.get("ANTIPHON_SCREENSHOTS", ".editor/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def running_editor(
    folder: Path, extensions: Sequence[Path], settings: Mapping[str, Any], workspace: Path
) -> Iterator[Editor]:
    """An editor with these packed extensions and user settings, whose window shows the folder `workspace`."""
    assert (INSTALLED / "installed").exists(), "the editor is not installed: run `make test-vscode`"
    (folder / "data" / "User").mkdir(parents=True)
    (folder / "data" / "User" / "settings.json").write_text(json.dumps({**QUIET, **settings}))
    port_file = folder / "asker-port"
    environ = {
        "PATH": f"{NODE.parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ANTIPHON_ASKER_PORT": str(port_file),
        "SECONDS": str(SECONDS),
    }
    command = [
        str(NODE),
        str(CODE_SERVER),
        "--user-data-dir",
        str(folder / "data"),
        "--extensions-dir",
        str(folder / "extensions"),
    ]
    installing = [word for extension in extensions for word in ("--install-extension", str(extension))]
    subprocess.run([*command, *installing], env=environ, check=True, capture_output=True, timeout=SECONDS)
    port = free_port()
    serving = ["--auth", "none", "--bind-addr", f"127.0.0.1:{port}", *OPTIONS, str(workspace)]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "code-server.log").open("wb"))
        stack.enter_context(process([*command, *serving], environ, stdout=log, stderr=log))
        until(lambda: is_listening(port), SECONDS)
        driver = [str(NODE), str(HERE / "driver.mjs"), str(INSTALLED / "driver" / "node_modules"), "/usr/bin/chromium"]
        user = stack.enter_context(
            process(driver, environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True),
        )
        editor = Editor(f"http://127.0.0.1:{port}/?folder={workspace}", user, port_file)
        editor.load()
        yield editor


@contextmanager
def running_gateway(config: Path, port: int, environ: Mapping[str, str], log: Path) -> Iterator[str]:
    """`antiphon serve` as a process, at an address that a test can use again after it ends."""
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config), "--port", str(port)]
    with log.open("ab") as output, process(command, {**os.environ, **environ}, stdout=output, stderr=output):
        until(lambda: is_listening(port), SECONDS)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def process(command: Sequence[str], environ: Mapping[str, str], **settings: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process; the process and its children end with the block."""
    with subprocess.Popen(command, env=environ, start_new_session=True, **settings) as started:
        try:
            yield started
        finally:
            with suppress(subprocess.TimeoutExpired):
                started.terminate()
                started.wait(timeout=10)
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
        return True
    return False


OPTIONS = ("--disable-workspace-trust", "--disable-telemetry", "--disable-update-check")
QUIET = {"workbench.startupEditor": "none", "telemetry.telemetryLevel": "off", "extensions.autoCheckUpdates": False}
