"""`ops/reload`: when a configuration is loaded again, and what is refused. The gateways at the end are real processes,
started by `antiphon serve`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from tests.ops.served_process import START, Gateway
from tests.running import BOUND, until

from antiphon import testing
from antiphon.config import Config, KeyConfig, ServerConfig, UpstreamConfig, load_config
from antiphon.errors import ProfileError
from antiphon.ops.reload import ConfigReloader
from antiphon.ops.running_file import ReloadResult, find_running_gateways
from antiphon.testing import ChatServer, Gate, turn

LAB = UpstreamConfig(name="lab", dialect="chat", base_url="http://lab/v1")
POLL = 0.005  # seconds


class FileSource:
    """A configuration in a file."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.load_count = 0
        self.next: Config | None = None  # instead of the file

    def load(self) -> Config:
        self.load_count += 1
        if self.next is not None:
            return self.next
        assert self.file is not None
        return load_config(self.file, {})


class Reloading:
    """A reloader, and the configurations that it applied."""

    def __init__(self, config: Config, source: FileSource, environ: dict[str, str]) -> None:
        self.source = source
        self.applied: list[Config] = []
        self.problem: str | None = None  # of the application
        self._environ = environ
        self.reloader = ConfigReloader(config, source, self._apply, "http://127.0.0.1:1", environ, poll_interval=POLL)

    def reload(self) -> ReloadResult:
        """Reloads, and returns the result."""
        number = self.result.number
        self.reloader.request()
        until(lambda: self.result.number > number)
        return self.result

    @property
    def result(self) -> ReloadResult:
        [gateway] = find_running_gateways(self._environ)
        return gateway.reload

    def _apply(self, config: Config) -> None:
        if self.problem is not None:
            raise ProfileError(self.problem)
        self.applied.append(config)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Reloading]]:
    started: list[Reloading] = []

    def start_reloader(config: Config, source: FileSource | None = None) -> Reloading:
        reloading = Reloading(config, source or FileSource(None), {"XDG_STATE_HOME": str(tmp_path / "state")})
        reloading.reloader.__enter__()
        started.append(reloading)
        return reloading

    yield start_reloader
    for reloading in started:
        reloading.reloader.__exit__(None, None, None)


def test_reload_applies_the_changes_and_names_settings_that_need_a_restart(start: Callable[..., Reloading]) -> None:
    config = Config(upstreams=[LAB])
    reloading = start(config)
    reloading.source.next = Config(upstreams=[replace(LAB, models=["m"])], server=ServerConfig(port=1))
    result = ReloadResult(number=1, changes=["upstreams: changed lab"], restart_settings=["server.port"])
    assert reloading.reload() == result
    assert reloading.applied == [Config(upstreams=[replace(LAB, models=["m"])])]
    assert reloading.reload() == ReloadResult(number=2, restart_settings=["server.port"])


def test_problem_of_a_reload_is_reported_and_the_next_one_works(
    start: Callable[..., Reloading], caplog: pytest.LogCaptureFixture
) -> None:
    reloading = start(Config(upstreams=[LAB]))
    reloading.source.next = Config(upstreams=[replace(LAB, name="b")])
    reloading.problem = "line 1\nline 2"
    assert reloading.reload().problem == "line 1\nline 2"
    reasons = [record.fields["why"] for record in caplog.records if hasattr(record, "fields")]
    assert reasons == ["line 1", "line 2"]
    reloading.problem = None
    assert reloading.reload().changes == ["upstreams: added b, removed lab"]


@pytest.mark.parametrize(
    ("current", "new", "problem"),
    [
        # The address stays public until a restart.
        (
            Config(upstreams=[LAB], server=ServerConfig(host="0.0.0.0"), keys=[KeyConfig(name="a", sha256="0" * 64)]),
            Config(upstreams=[LAB]),
            "no keys are configured",
        ),
        (
            Config(upstreams=[LAB]),
            Config(upstreams=[UpstreamConfig(name="local", dialect="chat", embedded=True)]),
            "the upstream 'local': the embedded model needs a restart",
        ),
        (
            Config(upstreams=[UpstreamConfig(name="local", dialect="chat", embedded=True)]),
            Config(upstreams=[UpstreamConfig(name="local", dialect="chat", embedded="embeddings", profile="chat")]),
            "the upstream 'local': the embedded model needs a restart",
        ),
        (
            Config(upstreams=[LAB]),
            Config(upstreams=[UpstreamConfig(name="own", dialect="responses", agent="a:b")]),
            "the upstream 'own': a new agent needs a restart",
        ),
    ],
    ids=["public address without keys", "embedded model", "another embedded model", "agent"],
)
def test_configuration_that_needs_a_restart_is_refused_as_a_whole(
    start: Callable[..., Reloading], current: Config, new: Config, problem: str
) -> None:
    reloading = start(current)
    reloading.source.next = new
    assert problem in reloading.reload().problem
    assert reloading.applied == []


FILE = '[server]\nwatch = true\n[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://lab/v1"\n'


def watching(start: Callable[..., Reloading], folder: Path, text: str = FILE) -> tuple[Path, Reloading]:
    file = folder / "antiphon.toml"
    file.write_text(text)
    source = FileSource(file)
    return file, start(source.load(), source)


def test_changed_file_is_loaded(start: Callable[..., Reloading], tmp_path: Path) -> None:
    file, reloading = watching(start, tmp_path)
    file.write_text(FILE.replace("//lab", "//other"))
    until(lambda: bool(reloading.applied))
    assert reloading.applied[0].upstreams[0].base_url == "http://other/v1"


def test_replaced_file_is_loaded_once_it_exists_again(start: Callable[..., Reloading], tmp_path: Path) -> None:
    file, reloading = watching(start, tmp_path)
    loads = reloading.source.load_count
    file.rename(tmp_path / "old.toml")
    assert not threading.Event().wait(20 * POLL)
    assert reloading.source.load_count == loads
    (tmp_path / "new.toml").write_text(FILE.replace("//lab", "//other"))
    (tmp_path / "new.toml").rename(file)
    until(lambda: bool(reloading.applied))
    assert reloading.source.load_count == loads + 1


def test_invalid_file_is_loaded_once(start: Callable[..., Reloading], tmp_path: Path) -> None:
    file, reloading = watching(start, tmp_path)
    file.write_text("[server]\nprot = 1\n")
    until(lambda: reloading.result.number == 1)
    assert not threading.Event().wait(20 * POLL)
    assert reloading.result.problem == f"{file}, line 2: server.prot: unknown setting; did you mean 'port'?"
    assert reloading.result.number == 1


def test_changed_profile_is_loaded(start: Callable[..., Reloading], tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('about = "Own."\nextends = "chat"\n')
    text = FILE + 'profile = "./own.toml"\n'
    _, reloading = watching(start, tmp_path, text)
    profile.write_text('about = "Own."\nextends = "chat"\n\n')
    until(lambda: len(reloading.applied) == 1)
    profile.write_text('about = "Own."\nextends = "no-such"\n')
    until(lambda: reloading.result.number == 2)
    assert "no-such" in reloading.result.problem


# Real processes


ENVIRON = {"ALICE_KEY": "alice-key", "BOB_KEY": "bob-key"}


class Served:
    """`antiphon serve` with a configuration file."""

    def __init__(self, folder: Path, workers: int, old: ChatServer, new: ChatServer) -> None:
        self.file = folder / "antiphon.toml"
        self.environ = {"XDG_STATE_HOME": str(folder / "state"), "PATH": os.environ["PATH"], **ENVIRON}
        self._workers = workers
        self._servers = {"old": old, "new": new}

    def write(self, upstream: str, model: str, owners: list[str], *more: str) -> None:
        lines = [
            f"[server]\nport = 0\nworkers = {self._workers}\nlog = 'json'",
            *more,
            "[store]\nurl = 'off'",
            f"[[upstreams]]\nname = '{upstream}'\ndialect = 'chat'\nmodels = ['{model}']",
            f"base_url = '{self._servers[upstream].base_url}'",
            *(f"[[keys]]\nname = '{owner}'\nenv = '{owner.upper()}_KEY'" for owner in owners),
        ]
        self.file.write_text("\n".join(lines) + "\n")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "antiphon", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )

    @contextmanager
    def serve(self, *words: str) -> Iterator[Gateway]:
        command = [sys.executable, "-m", "antiphon", "serve", "--config", str(self.file), *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=self.environ, **pipes) as process:
            try:
                gateway = Gateway(process)
                gateway.url = gateway.url.rpartition(" ")[2].removesuffix("/v1")
                yield gateway
            finally:
                process.kill()


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer, Gate]]:
    """A server whose stream waits for the gate, another one, and the gate."""
    gate = Gate()
    slow = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))
    with ChatServer([slow]) as old, ChatServer([turn(testing.text("new"))] * 50) as new:
        yield old, new, gate
        gate.open()


def status(gateway: Gateway, owner: str) -> int:
    """The status of a request on a connection of its own, which any worker may get."""
    headers = {"authorization": f"Bearer {owner}-key"}
    return httpx2.get(f"{gateway.url}/v1/models", headers=headers, timeout=START).status_code


def ask(gateway: Gateway, model: str, **members: Any) -> httpx2.Response:
    body = {"model": model, "input": "Go.", **members}
    headers = {"authorization": "Bearer alice-key"}
    return httpx2.post(f"{gateway.url}/v1/responses", json=body, headers=headers, timeout=START)


@pytest.mark.io
@pytest.mark.without_coverage
@pytest.mark.parametrize("workers", [1, 2])
def test_reload_changes_every_worker_and_drops_no_stream(workers: int, servers: Any, tmp_path: Path) -> None:
    old, new, gate = servers
    answers: list[httpx2.Response] = []
    served = Served(tmp_path, workers, old, new)
    served.write("old", "m", ["alice", "bob"])
    with served.serve() as gateway:
        client = threading.Thread(target=lambda: answers.append(ask(gateway, "m", stream=True)))
        client.start()
        gate.wait_reached()
        assert status(gateway, "bob") == 200
        served.write("new", "n", ["alice"], "host = 'localhost'")
        outcome = served.command("reload")
        assert (outcome.returncode, outcome.stderr) == (0, "")
        assert outcome.stdout.splitlines() == [
            f"reloaded {served.file} at {gateway.url}",
            "  upstreams: added new, removed old",
            "  keys: removed bob",
            "  server.host: needs a restart of the gateway",
        ]
        assert [status(gateway, owner) for owner in ("alice", "bob") * 10] == [200, 401] * 10
        assert ask(gateway, "m").json()["error"]["code"] == "model_not_found"
        assert ask(gateway, "n").status_code == 200
        gate.open()
        client.join(BOUND)
        gateway.stop()
    assert "event: response.completed" in answers[0].text
    assert [line["settings"] for line in gateway.log if "need a restart" in line["event"]] == ["server.host"]


@pytest.mark.io
@pytest.mark.without_coverage
@pytest.mark.parametrize("workers", [1, 2])
def test_invalid_file_changes_nothing_and_says_why(workers: int, servers: Any, tmp_path: Path) -> None:
    old, new, _ = servers
    served = Served(tmp_path, workers, new, old)
    served.write("old", "m", ["alice", "bob"])
    with served.serve() as gateway:
        assert ask(gateway, "m").status_code == 200
        served.write("new", "n", ["alice"], "modls = 1")
        outcome, check = served.command("reload"), served.command("config", "check", str(served.file))
        assert (outcome.returncode, outcome.stdout, outcome.stderr) == (2, "", check.stderr)
        assert "line 5: server.modls: unknown setting" in outcome.stderr
        assert [status(gateway, owner) for owner in ("alice", "bob") * 5] == [200] * 10
        assert ask(gateway, "m").status_code == 200
        gateway.stop()
    assert any("line 5: server.modls" in line.get("why", "") for line in gateway.log if line["level"] == "error")


@pytest.mark.io
@pytest.mark.without_coverage
def test_worker_that_starts_after_a_reload_has_its_configuration(servers: Any, tmp_path: Path) -> None:
    served = Served(tmp_path, 2, *servers[:2])
    served.write("old", "m", ["alice", "bob"])
    with served.serve() as gateway:
        until(lambda: len(gateway.workers()) == 2, START)
        served.write("new", "n", ["alice"])
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda: status(gateway, "bob") == 401, START)
        killed = gateway.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(gateway.workers() - killed) == 2, START)
        assert [status(gateway, owner) for owner in ("alice", "bob") * 5] == [200, 401] * 5
        gateway.stop()


@pytest.mark.io
@pytest.mark.without_coverage
@pytest.mark.parametrize("workers", [1, 2])
def test_changed_file_is_loaded_by_a_gateway_that_watches(workers: int, servers: Any, tmp_path: Path) -> None:
    served = Served(tmp_path, workers, *servers[:2])
    served.write("old", "m", ["alice", "bob"])
    with served.serve("--watch") as gateway:
        assert status(gateway, "bob") == 200
        served.write("old", "m", ["alice"])
        until(lambda: status(gateway, "bob") == 401, START)
        assert status(gateway, "alice") == 200
        gateway.stop()
