"""`antiphon usage`: the usage report for people and scripts (C-5)."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
from tests.cli.network import Terminal

from antiphon.cli import usage
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import OK, InvalidUsage
from antiphon.config import StoreConfig
from antiphon.store.opening import open_store
from antiphon.store.usage import UsageRow

NOW = 1_700_000_000
TODAY = NOW // 86_400  # 2023-11-14


def run(cwd: Path, *argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = usage.run(make_parser().parse_args(["usage", *argv]), out, err, environ={}, cwd=cwd, now=lambda: NOW + 0.5)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "antiphon.toml").write_text('[store]\nurl = "sqlite:///kept.db"\n')
    return tmp_path


def fill(cwd: Path, *rows: UsageRow) -> None:
    async def go() -> None:
        store = await open_store(StoreConfig(url=f"sqlite:///{cwd}/kept.db"), {})
        assert store
        await store.add_usage(rows)
        await store.close()

    asyncio.run(go())


def row(day: int = TODAY, owner: str = "anna", model: str = "big", tokens: int = 100) -> UsageRow:
    return UsageRow(
        day=day, owner=owner, model=model, upstream="lab", requests=1, input_tokens=tokens, output_tokens=20, losses=2
    )


@pytest.mark.parametrize("model", ["big", "a-model-with-a-very-long-name-that-fills-the-line"])
def test_usage_table_fits_a_terminal(model: str, cwd: Path) -> None:
    fill(cwd, row(model=model, tokens=123_456_789), row(model="small", tokens=1))
    out = Terminal()
    args = make_parser().parse_args(["usage"])
    usage.run(args, out, io.StringIO(), environ={"NO_COLOR": "1"}, cwd=cwd, now=lambda: NOW + 0.5)
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())


def test_usage_table_has_rows_and_proportional_bars(cwd: Path) -> None:
    """C-5."""
    fill(
        cwd,
        row(tokens=2380),
        row(model="small\x1b[2J"),
        row(model="none", tokens=-20),
        row(day=TODAY - 31, model="old"),
    )
    code, out, _ = run(cwd)
    heading, big, small, none, total = out.splitlines()
    assert code == OK
    assert heading.split() == ["MODEL", "REQUESTS", "ERRORS", "INPUT", "CACHED", "OUTPUT", "REASONING", "LOSSES"]
    assert big.split() == ["big", "1", "0", "2,380", "0", "20", "0", "2", "█" * 24]
    assert "\x1b" not in small
    assert small.endswith("  █")
    assert none.split()[-1] == "2"
    assert total.split()[:2] == ["total", "3"]


def test_usage_groups_by_day_key_and_upstream(cwd: Path) -> None:
    fill(cwd, row(), row(owner="bob"), row(day=TODAY - 1), row(day=TODAY - 9))
    assert [line.split()[0] for line in run(cwd, "--by", "day", "--since", "7d")[1].splitlines()[1:-1]] == [
        "2023-11-13",
        "2023-11-14",
    ]
    assert [line.split()[:2] for line in run(cwd, "--by", "key")[1].splitlines()[1:-1]] == [["anna", "3"], ["bob", "1"]]
    decoded = json.loads(run(cwd, "--by", "upstream", "--since", "2023-11-14", "--json")[1])
    assert (decoded["by"], decoded["since"], decoded["until"]) == ("upstream", "2023-11-14", "2023-11-14")
    assert [(entry["upstream"], entry["requests"]) for entry in decoded["data"]] == [("lab", 2)]


def test_usage_escapes_direction_characters(cwd: Path) -> None:
    fill(cwd, row(model="a\u202eb"))
    for output in (run(cwd)[1], run(cwd, "--json")[1]):
        assert "\u202e" not in output
        assert "a\\u202eb" in output


def test_usage_reports_an_empty_period(cwd: Path) -> None:
    fill(cwd)
    assert run(cwd) == (OK, "", "no usage since 2023-10-16\n")


def test_usage_refuses_a_disabled_store(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[store]\nurl = "off"\n')
    with pytest.raises(InvalidUsage, match="the store is disabled"):
        run(tmp_path)


@pytest.mark.parametrize("since", ["yesterday", "0d", "x d", "2023-13-01"])
def test_usage_rejects_invalid_days(since: str, cwd: Path) -> None:
    with pytest.raises(SystemExit):
        run(cwd, "--since", since)
