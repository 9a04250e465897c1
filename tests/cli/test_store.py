"""`antiphon store`: statistics, pruning and verification of the store, for people and scripts."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from tests.store import postgres_server
from tests.store.stores import STORES, record

from antiphon.cli import store
from antiphon.cli.entry import main, make_parser
from antiphon.cli.exits import FAILED, INVALID_USAGE, OK, InvalidUsage
from antiphon.config import StoreConfig
from antiphon.errors import ConfigError
from antiphon.store.interface import Store
from antiphon.store.opening import open_store

DAY = 86_400
NOW = 1_700_000_000


def run(cwd: Path, *argv: str) -> tuple[int, str]:
    out = io.StringIO()
    code = store.run(
        make_parser().parse_args(["store", *argv]), out, io.StringIO(), environ={}, cwd=cwd, now=lambda: NOW + 0.5
    )
    return code, out.getvalue()


@pytest.fixture(params=STORES)
def cwd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a configuration that names an empty store."""
    url = "sqlite:///kept.db" if request.param == "sqlite" else postgres_server.fresh_url()
    (tmp_path / "antiphon.toml").write_text(f'[store]\nurl = "{url}"\nretention_days = 2\nmax_responses = 4\n')
    return tmp_path


def fill(cwd: Path, work: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        url = msgspec.toml.decode((cwd / "antiphon.toml").read_bytes())["store"]["url"]
        opened = await open_store(StoreConfig(url=url.replace("sqlite:///", f"sqlite:///{cwd}/")), {})
        assert opened
        await work(opened)
        await opened.close()

    asyncio.run(go())


async def a_few_days(opened: Store) -> None:
    for days in range(6):
        await opened.save("anna", record(f"resp_{days}", at=NOW - days * DAY), [f"msg_{days}"], [])


def test_store_stats_of_an_empty_store_are_zero(cwd: Path) -> None:
    code, out = run(cwd, "stats")
    lines = [line.split() for line in out.splitlines()]
    assert code == OK
    assert lines[:3] == [["responses", "0"], ["owners", "0"], ["ids", "0"]]
    assert lines[3:5] == [["conversations", "0"], ["events", "0"]]
    assert lines[6:] == [["oldest", "-"], ["newest", "-"], ["queue", "0", "waiting,", "0", "running"]]


def test_store_stats_prints_figures(cwd: Path) -> None:
    fill(cwd, a_few_days)
    _, out = run(cwd, "stats")
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["responses"] == lines["ids"] == "6"
    assert lines["oldest"] == "2023-11-09 22:13:20Z"
    assert lines["newest"] == "2023-11-14 22:13:20Z"
    assert lines["size"].endswith(" MiB")


def test_store_stats_json_prints_one_object(cwd: Path) -> None:
    fill(cwd, a_few_days)
    code, out = run(cwd, "stats", "--json")
    stats = msgspec.json.decode(out)
    assert (code, out.count("\n")) == (OK, 1)
    assert stats.pop("bytes") > 0
    assert stats == {
        "responses": 6,
        "owners": 1,
        "items": 6,
        "conversations": 0,
        "events": 0,
        "oldest": NOW - 5 * DAY,
        "newest": NOW,
        "queue": {"waiting": 0, "running": 0, "oldest_waiting": None},
    }


async def some_work(opened: Store) -> None:
    for number in range(3):
        await opened.enqueue("anna", record(f"resp_{number}", at=NOW + number), [], b"{}")
    [work] = await opened.claim("runner", 600, 1)
    await opened.append("runner", work.id, 0, [b"{}", b"{}"], "in_progress")


def test_store_stats_shows_the_background_queue(cwd: Path) -> None:
    """API-2: the number of queued and running background responses."""
    fill(cwd, some_work)
    _, out = run(cwd, "stats")
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["queue"] == "2 waiting, 1 running, the oldest since 2023-11-14 22:13:21Z"
    assert lines["events"] == "2"
    _, out = run(cwd, "stats", "--json")
    assert msgspec.json.decode(out)["queue"] == {"waiting": 2, "running": 1, "oldest_waiting": NOW + 1}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "removed 3 responses\n"),
        (["--days", "0.5"], "removed 5 responses\n"),
        (["--days", "5"], "removed 2 responses\n"),  # max_responses still applies
        (["--days", "5", "--keep", "5"], "removed 1 response\n"),
        (["--days", "36500", "--keep", "0"], "removed 6 responses\n"),
    ],
)
def test_store_prune_removes_old_responses(argv: list[str], words: str, cwd: Path) -> None:
    fill(cwd, a_few_days)
    assert run(cwd, "prune", *argv) == (OK, words)
    assert run(cwd, "prune", *argv) == (OK, "removed 0 responses\n")


def test_store_prune_removes_more_than_one_batch(cwd: Path) -> None:
    async def many(opened: Store) -> None:
        await asyncio.gather(*(opened.save("anna", record(f"resp_{n}", at=1), [], []) for n in range(250)))

    fill(cwd, many)
    assert run(cwd, "prune") == (OK, "removed 250 responses\n")


def test_store_verify_reports_a_sound_store(cwd: Path) -> None:
    fill(cwd, a_few_days)
    assert run(cwd, "verify") == (OK, "no problems found\n")


def test_store_verify_fails_for_a_damaged_store(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[store]\nurl = "sqlite:///kept.db"\n')
    run(tmp_path, "stats", "--config", "mine.toml")
    with closing(apsw.Connection(str(tmp_path / "kept.db"))) as db:
        db.execute("INSERT INTO found_by VALUES (x'00', 0, x'00', 7)")
    assert run(tmp_path, "verify", "--config", "mine.toml") == (
        FAILED,
        "ids without a response of their owner: 1\n",
    )


def test_store_commands_refuse_a_disabled_store(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[store]\nurl = "off"\n')
    with pytest.raises(InvalidUsage, match=r"the store is disabled: \[store\] url is off"):
        run(tmp_path, "stats")


def test_store_without_configuration_is_in_the_data_folder_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="neither HOME nor XDG_DATA_HOME is set"
    ):  # the environment of these tests is empty
        run(tmp_path, "stats")


@pytest.mark.parametrize(
    "argv", [["--days", "-1"], ["--days", "nan"], ["--days", "soon"], ["--keep", "-1"], ["--keep", "1.5"]]
)
def test_store_prune_rejects_invalid_limits(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "prune", *argv]) == INVALID_USAGE
    assert re.search(f"invalid number of .* {argv[1]!r}: expected", capsys.readouterr().err)


def test_store_backup_and_restore(cwd: Path) -> None:
    fill(cwd, a_few_days)
    if "postgres" in (cwd / "antiphon.toml").read_text():
        with pytest.raises(InvalidUsage, match="pg_dump"):
            run(cwd, "backup", "copy.db")
        with pytest.raises(InvalidUsage, match="pg_restore"):
            run(cwd, "restore", "copy.db")
        return
    code, out = run(cwd, "backup", "copy.db")
    assert code == OK
    assert "kept.db: backed up to " in out
    (cwd / "kept.db").unlink()
    assert "restored from" in run(cwd, "restore", "copy.db")[1]
    assert "the previous database is now" in run(cwd, "restore", "copy.db")[1]
    assert "responses      6\n" in run(cwd, "stats")[1]


def test_store_backup_of_a_disabled_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[store]\nurl = "off"\n')
    with pytest.raises(InvalidUsage, match="the store is disabled"):
        run(tmp_path, "backup", "copy.db")
