"""Every block of the README is run, against `antiphon serve` as a new user starts it: without keys and with the real
model. Its figures are those of the benchmark results."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.page_player import PATIENCE, Block, Player, blocks_of, reader
from tests.running import BOUND, until
from tests.sources import REPO

pytestmark = pytest.mark.io
README = REPO / "README.md"
TEXT = README.read_text(encoding="utf-8")
INSTALL, MAKE_RUN, ASK, SDKS, AGENT = blocks_of(README)


def test_readme_fits_two_screens() -> None:
    assert len(TEXT.splitlines()) <= 100


# Install


def test_install_line_is_that_of_the_install_page() -> None:
    """`make test-install` runs it from built wheels."""
    assert INSTALL.text == blocks_of(REPO / "docs" / "install.md")[0].text
    assert INSTALL.text.split()[-1] == "serve"


def test_make_run_starts_antiphon_serve(tmp_path: Path) -> None:
    command = shlex.split(MAKE_RUN.text)
    environ = Player(tmp_path, {"8080": "8080"}).environ
    steps = subprocess.run(
        ["make", "-n", *command[1:]], cwd=REPO, env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert command[0] == "make"
    assert steps.splitlines()[-1].endswith("/antiphon serve")


def test_make_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    commands = set(re.findall(r"\bmake ([a-z-]+)`|^make ([a-z-]+)$", TEXT, re.MULTILINE))
    assert {"run", "test", "docs-serve", "bench-peers"} <= {target or alone for target, alone in commands} <= targets


# A gateway as a new user starts it


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """A reader whose gateway checks its own output, and found no violation in the end."""
    with reader(tmp_path_factory.mktemp("reader")) as player:
        player.serve("antiphon serve --debug")
        yield player
        player.servers[0].stop()
        assert player.servers[0].process.returncode == 0
        assert [line for line in log_of(player) if line["event"] != "request"] == []


def log_of(player: Player) -> list[dict[str, Any]]:
    lines = player.servers[0].log.read_text(encoding="utf-8").splitlines(keepends=True)
    return [msgspec.json.decode(line) for line in lines if line.endswith("\n")]


def test_ask_block_answers_and_remembers(player: Player) -> None:
    """F-3, PREV-1: the real model, from the command line."""
    player.play(ASK)
    assert "Lima" in player.output
    assert "walnut" in player.output.splitlines()[-1].lower()


def test_sdk_block_prints_the_answer_of_both_apis(player: Player) -> None:
    """API-6."""
    player.play(SDKS)
    assert player.output.count("Lima") == 2


def test_agent_block_writes_a_configuration_and_starts_the_agent(player: Player) -> None:
    program = player.folder / "programs" / "claude"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport os\nprint('claude on', os.environ['ANTHROPIC_BASE_URL'])\n")
    program.chmod(0o755)
    player.play(AGENT)
    assert player.output.splitlines()[-1] == f"claude on {player.url}"
    assert "embedded = true" in (player.folder / "antiphon.toml").read_text(encoding="utf-8")


def test_agents_that_the_readme_names_can_be_run() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "antiphon", "run", "--help"], capture_output=True, text=True, check=True
    )
    sentence = TEXT.partition("`run` also knows ")[2].partition(":")[0]
    assert len(named := re.findall(r"`(\w+)`", sentence)) == 5
    assert [agent for agent in named if agent not in help_text.stdout] == []


@pytest.mark.parametrize("flags", [["-si"], ["-N"]])
def test_curl_stand_in_sends_the_request_of_curl(flags: list[str], player: Player) -> None:
    """Otherwise a machine without curl would run other blocks than the pages have."""
    body = '{"model":"local","input":"Say hello.","stream":true,"max_output_tokens":16}'
    command = [str(player.folder / "stand-ins" / "curl"), *flags, f"{player.url}/v1/responses"]
    command += ["-H", "Content-Type: application/json", "-d", body]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert output.rstrip().endswith("data: [DONE]")
    assert ("x-request-id: req_" in output) == (flags == ["-si"])


def test_text_arrives_while_the_answer_is_generated(player: Player) -> None:
    """F-3: a client that disconnects at the first piece disconnects during the answer."""
    asked = {"model": "local", "input": "Tell a long story about the sea, in many chapters.", "stream": True}
    with httpx2.stream("POST", f"{player.url}/v1/responses", json=asked, timeout=PATIENCE) as answer:
        assert any("response.output_text.delta" in line for line in answer.iter_lines())
    id = answer.headers["x-request-id"]
    until(lambda: any(line.get("request_id") == id for line in log_of(player)))
    assert next(line for line in log_of(player) if line.get("request_id") == id)["client_left"]


def test_serve_without_any_settings_answers_and_stops(tmp_path: Path) -> None:
    """F-3: no configuration, no key, an empty environment: its output is correct, and no process is left at the end."""
    with reader(tmp_path) as player:
        player.serve("antiphon serve")
        process = player.servers[0].process
        curl, ask = re.findall(r"^  (curl .+)\n  (\S*antiphon ask .+)$", player.output, flags=re.MULTILINE)[0]
        assert "local  chat  embedded  local" in player.output
        assert player.url in curl
        models = httpx2.get(f"{player.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["local"]
        player.play(Block("", "sh", ask))
        assert player.output.strip()
        children = _children(process.pid)
        assert children or not Path("/proc/self/task").is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0
        assert not [pid for pid in children if _is_there(pid)]
        assert process.stdout is not None
        assert process.stdout.read() == ""


def _children(pid: int) -> list[int]:
    """The child processes of a process; none where there is no /proc."""
    return [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Figures

WORKLOADS = {
    "a stream of 64 chunks": "burst-new",
    "an answer without streaming": "json-new",
    "a stream with two tool calls": "tools",
    "idle memory, MiB": "idle",
}
GATEWAYS = ["antiphon", "llm-rosetta", "open-responses-server", "litellm"]


def test_table_has_the_figures_of_the_benchmark_results() -> None:
    results = (REPO / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    section = results.partition("\n## Other gateways\n")[2].partition("\n## ")[0]
    measured = _table(section.partition("| µs per request |")[1] + section.partition("| µs per request |")[2])
    [_, *workloads], *rows = measured
    figures = {row[0]: dict(zip(workloads, row[1:], strict=True)) for row in rows}
    [_, *titles], *stated = _table(TEXT.partition("## Compared with other gateways")[2].partition("## ")[0])
    assert [title.lower() for title in titles] == GATEWAYS
    assert {row[0] for row in stated} == WORKLOADS.keys()
    for label, *cells in stated:
        expected = [figures[gateway][WORKLOADS[label]].split()[0] for gateway in GATEWAYS]
        assert [cell.strip("*").replace(",", "").replace("–", "—") for cell in cells] == expected
    assert section.partition("Measured on ")[2].partition(":")[0] in TEXT
    [rounds] = re.findall(r"the median of (\d+) rounds", section)
    assert int(rounds) >= 5
    assert f"the median of {rounds} rounds" in TEXT


def _table(text: str) -> list[list[str]]:
    """The rows of the first table of a text, without the line below the heads."""
    lines = re.search(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert lines
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return [row for row in rows if not set("".join(row)) <= {"-", ":", " "}]
