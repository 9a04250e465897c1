"""The commands and settings of `docs/state.md` work as described."""

from __future__ import annotations

import asyncio
import io
import shlex
from pathlib import Path

import pytest
from tests.clients.blocks import block
from tests.store.postgres_server import fresh_url, sql, url_of

from antiphon.cli import store as command
from antiphon.cli.entry import make_parser
from antiphon.config import StoreConfig, parse_config
from antiphon.store.interface import ResponseRecord
from antiphon.store.opening import open_store

RECORD = ResponseRecord(
    id="resp_1", previous=None, created_at=1, status="completed", head=b"{}", input=b"[]", output=b"[]"
)


def block_of(containing: str) -> str:
    return block(containing, "state.md")


def store_config_in(text: str) -> StoreConfig:
    return parse_config(text, "antiphon.toml", {}).store


async def save(config: StoreConfig) -> None:
    store = await open_store(config, {})
    assert store is not None
    await store.save("anybody", RECORD, [], [])
    await store.close()


def tell(line: str, folder: Path) -> str:
    """The output of `antiphon store …`."""
    program, *words = shlex.split(line)
    assert program == "antiphon"
    out = io.StringIO()
    assert command.run(make_parser().parse_args(words), out, io.StringIO(), environ={}, cwd=folder) == 0
    return out.getvalue()


def test_page_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "antiphon.toml").write_text(block_of("sqlite:///"))
    asyncio.run(save(StoreConfig(url="sqlite:///data/antiphon.db")))
    stats, prune, verify = block_of("store stats").splitlines()
    assert tell(stats, tmp_path).split()[:2] == ["responses", "1"]
    assert tell(prune, tmp_path) == "removed 1 response\n"
    assert tell(verify, tmp_path) == "no problems found\n"


def test_page_backup_commands_copy_an_open_store_and_restore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "antiphon.toml").write_text(block_of("sqlite:///"))
    config = store_config_in(block_of("sqlite:///"))
    backup, restore = block_of("store backup").splitlines()

    async def back_up() -> None:
        store = await open_store(config, {})
        assert store is not None
        await store.save("anybody", RECORD, [], [])
        await asyncio.to_thread(tell, backup, tmp_path)
        await store.delete("anybody", "resp_1")
        await store.close()

    async def read() -> None:
        copy = await open_store(config, {})
        assert copy is not None
        assert await copy.get("anybody", "resp_1") == RECORD
        assert await copy.verify() == []
        await copy.close()

    asyncio.run(back_up())
    tell(restore.partition("#")[0], tmp_path)
    asyncio.run(read())


def test_page_settings_are_valid() -> None:
    retention = store_config_in(block_of("retention_days"))
    assert (retention.url, retention.retention_days, retention.max_responses) == (None, 7, 100000)
    postgres = store_config_in(block_of("postgresql://"))
    assert postgres.url == "postgresql://antiphon@db.example.com/antiphon"


@pytest.mark.io
def test_page_postgresql_user_has_the_required_rights() -> None:
    fresh_url()  # ensures a running server
    for statement in block_of("CREATE USER").splitlines():
        sql(statement)
    try:
        asyncio.run(save(StoreConfig(url=url_of("antiphon", "antiphon"))))
    finally:
        sql("DROP DATABASE antiphon")
        sql("DROP USER antiphon")
