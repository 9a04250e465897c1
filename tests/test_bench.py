"""Tests of the benchmarks: the report, request bodies, targets, commits, and servers that do not start."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from bench.capacity import BEGIN, END, PAGE, SLOW_STREAM, write_between_markers
from bench.commits import REPOSITORY, checked_out, git_environ, working_tree
from bench.gateway import DIALECT_COMPARISON, render_not_measured, start_failure
from bench.payloads import STAMP, TURNS, plain_body, responses_body
from bench.report import render_table, write_section
from bench.servers import Cores, Server
from bench.targets import TARGETS, Kind, Target, antiphon
from bench.walk import measure_turns
from bench.workloads import WORKLOADS, Workload, bodies


def test_write_section_replaces_only_the_section_of_the_same_title(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    write_section("One", "old", path)
    write_section("Two", "kept\n", path)
    write_section("One", "new", path)
    text = path.read_text()
    assert text.startswith("# Benchmark results\n")
    assert text.endswith("## One\n\nnew\n\n## Two\n\nkept\n")


def test_rendered_table_has_one_line_per_row() -> None:
    assert (
        render_table(["name", "µs"], [["a", "1"], ["b", "2"]]) == "| name | µs |\n| --- | --: |\n| a | 1 |\n| b | 2 |\n"
    )


def test_capacity_tables_replace_what_stands_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(f"before\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    write_between_markers(page, "| new |\n")
    assert page.read_text() == f"before\n\n{BEGIN}\n\n| new |\n\n{END}\n\nafter\n"
    page.write_text(f"{END} {BEGIN}")
    with pytest.raises(SystemExit, match="page must have"):
        write_between_markers(page, "")


def test_scaling_page_has_the_capacity_of_every_kind_of_work() -> None:
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    for row in ("stored short request", "stored stream of 20 KB", "background response, short", SLOW_STREAM, "1,000"):
        assert f"| {row} |" in table


def test_workload_markers_name_the_expected_content() -> None:
    assert WORKLOADS["tools"].markers("responses") == ["response.completed", "response.function_call_arguments.done"]
    assert WORKLOADS["tools"].markers("chat") == ["[DONE]"]
    assert WORKLOADS["json-new"].markers("responses") == ["output_text"]


def test_workload_body_sets_store() -> None:
    for stream in (False, True):
        bodies = {
            store: msgspec.json.decode(plain_body("mock-n16", stream=stream, store=store)) for store in (False, True)
        }
        assert [body["store"] for body in bodies.values()] == [False, True]
        assert bodies[True] == {**bodies[False], "store": True}
        assert msgspec.json.decode(responses_body(stream=stream, store=True))["store"] is True
    assert msgspec.json.decode(responses_body())["store"] is False


@pytest.mark.parametrize("kind", ["responses", "chat"])
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_first_message_of_every_conversation_has_the_stamp(workload: Workload, kind: Kind) -> None:
    for body in bodies(kind, workload):
        members = msgspec.json.decode(body)
        first = next(message for message in members.get("input") or members["messages"] if message["role"] == "user")
        assert STAMP in str(first["content"])
        assert body.count(STAMP.encode()) == 1


def test_growing_conversation_sends_each_turn_whole() -> None:
    turns = [msgspec.json.decode(body) for body in bodies("responses", WORKLOADS["growing"])]
    assert len(turns) == TURNS
    for earlier, later in itertools.pairwise(turns):
        assert later["input"][: len(earlier["input"])] == earlier["input"]
        assert {**earlier, "input": []} == {**later, "input": []}
    assert [item["role"] for item in turns[1]["input"]] == ["user", "assistant", "user"]
    assert turns[-1] == msgspec.json.decode(responses_body("mock-n64", stream=False))


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=git_environ()).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, of which the second changes the only file."""
    git(tmp_path, "init", "-q")
    (tmp_path / "src").mkdir()
    for text in ("old", "new"):
        (tmp_path / "src" / "file").write_text(text)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", f"add {text}")
    return tmp_path


@pytest.mark.io
def test_checked_out_commit_folder_is_removed(repository: Path) -> None:
    with checked_out("HEAD~1", repository) as other:
        assert (other.source / "file").read_text() == "old"
        assert (other.id, other.subject) == (git(repository, "rev-parse", "--short", "HEAD~1"), "add old")
    assert not other.source.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert (repository / "src" / "file").read_text() == "new"


@pytest.mark.io
def test_working_tree_says_whether_it_differs_from_its_commit(repository: Path) -> None:
    commit = git(repository, "rev-parse", "--short", "HEAD")
    assert (working_tree(repository).id, working_tree(repository).subject) == (commit, "add new")
    (repository / "results").write_text("of a measurement")
    assert working_tree(repository).id == commit
    (repository / "src" / "file").write_text("changed")
    assert working_tree(repository).id == f"{commit}-dirty"


@pytest.mark.io
def test_unknown_commit_is_refused(repository: Path) -> None:
    with pytest.raises(SystemExit, match="git rev-parse"), checked_out("no-such-commit", repository):
        pass


def test_target_of_a_commit_uses_its_own_sources(tmp_path: Path) -> None:
    target = antiphon("antiphon-1a2b", "", source=tmp_path, commit="1a2b")
    assert target.environ["PYTHONPATH"] == str(tmp_path)
    assert target.version_command == ["echo", "commit 1a2b"]
    assert target.command == TARGETS["antiphon"].command
    assert "PYTHONPATH" not in TARGETS["antiphon"].environ


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Starts a shell script as a server under measurement."""
    servers: list[Server] = []

    def start(script: str) -> Server:
        target = Target(name="scripted", description="", command=["sh", "-c", script], version_command=[])
        servers.append(Server(target, 1, 1, Cores.available(), tmp_path))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.io
def test_start_failure_is_the_last_line_of_the_log(start_server: Callable[[str], Server]) -> None:
    server = start_server("echo starting; printf 'No module named wsproto\\n\\n' >&2; exit 1")
    assert not server.wait_until_listening()
    assert start_failure(server) == "did not start: No module named wsproto"


@pytest.mark.io
def test_start_failure_names_no_local_folder(start_server: Callable[[str], Server]) -> None:
    server = start_server(f"echo $PWD/antiphon.toml and {REPOSITORY}/bench: unknown setting; exit 1")
    assert not server.wait_until_listening()
    assert start_failure(server) == "did not start: antiphon.toml and bench: unknown setting"


@pytest.mark.io
def test_start_failure_without_output_says_so(start_server: Callable[[str], Server]) -> None:
    server = start_server("exit 1")
    assert not server.wait_until_listening()
    assert start_failure(server) == "did not start: its log is empty"


def test_report_names_the_reason_of_every_target_that_was_not_measured() -> None:
    reasons = {"litellm": "not installed", "antiphon-1a2b": "did not start: No module named wsproto"}
    assert render_not_measured(reasons) == (
        "\nNot measured:\n\n- **litellm**: not installed\n- **antiphon-1a2b**: did not start: No module named wsproto\n"
    )
    assert render_not_measured({}) == ""


def test_target_store_is_in_the_run_folder_or_at_the_given_url() -> None:
    assert 'url = "sqlite:///{folder}/antiphon.db"' in TARGETS["antiphon"].files["antiphon.toml"]
    two = antiphon("two", "", store="postgresql://somewhere", workers=2)
    assert 'url = "postgresql://somewhere"' in two.files["antiphon.toml"]
    assert "workers = 2\n" in two.files["antiphon.toml"]
    assert two.workers == 2


def test_target_has_keys_and_no_trace() -> None:
    settings = TARGETS["antiphon"].files["antiphon.toml"]
    assert "[[keys]]" in settings
    assert "[trace]" not in settings


def test_targets_cover_servers_of_several_dialects() -> None:
    settings = {target.name: target.files["antiphon.toml"] for target in DIALECT_COMPARISON.targets}
    assert list(settings) == ["antiphon", "antiphon-messages", "antiphon-gemini"]
    assert 'dialect = "chat"\nbase_url = "http://127.0.0.1:{upstream}/v1"' in settings["antiphon"]
    assert 'dialect = "messages"\nbase_url = "http://127.0.0.1:{upstream}/v1"' in settings["antiphon-messages"]
    assert 'dialect = "gemini"\nbase_url = "http://127.0.0.1:{upstream}/v1beta"' in settings["antiphon-gemini"]
    assert set(DIALECT_COMPARISON.workloads) <= set(WORKLOADS)


@pytest.mark.io
@pytest.mark.without_coverage
def test_turn_crosses_at_most_45_files(tmp_path: Path) -> None:
    """One subject in several files is harder to read; `python -m bench.walk --files` lists the files of each turn."""
    upstream = (sys.executable, str(REPOSITORY / "tests" / "chat_upstream.py"))
    walks = measure_turns(working_tree(), tmp_path, mock_command=upstream)
    files = {name: len(set(walk.files)) for name, walk in walks.items()}
    assert len(files) == 4
    assert {name: count for name, count in files.items() if not 30 < count <= 45} == {}
