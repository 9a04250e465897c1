"""Which store a configuration selects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.store import postgres_server
from tests.store.stores import record

from antiphon.config import StoreConfig
from antiphon.errors import ConfigError
from antiphon.store.opening import default_path, open_store


def opened(url: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The kind of the store, after a response was saved in it and read again."""

    async def go() -> str:
        store = await open_store(StoreConfig(url=url), environ or {})
        if store is None:
            return "none"
        await store.save("anna", record("resp_1"), [], [])
        assert await store.get("anna", "resp_1") == record("resp_1")
        await store.close()
        return type(store).__name__

    return asyncio.run(go())


def test_sqlite_url_accepts_an_absolute_path(tmp_path: Path) -> None:
    assert opened(f"sqlite:///{tmp_path}/some/a.db") == "SqliteStore"
    assert (tmp_path / "some" / "a.db").is_file()


def test_sqlite_url_accepts_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert opened("sqlite:///some/a.db") == "SqliteStore"
    assert (tmp_path / "some" / "a.db").is_file()


def test_sqlite_url_decodes_percent_escapes(tmp_path: Path) -> None:
    assert opened(f"sqlite:///{tmp_path}/why%3F 100%25.db") == "SqliteStore"
    assert (tmp_path / "why? 100%.db").is_file()


def test_default_store_is_in_the_data_folder_of_the_user(tmp_path: Path) -> None:
    assert opened(None, {"HOME": str(tmp_path)}) == "SqliteStore"
    assert (tmp_path / ".local" / "share" / "antiphon" / "antiphon.db").is_file()


@pytest.mark.parametrize(
    ("environ", "platform", "path"),
    [
        ({"HOME": "/home/anna"}, "linux", "/home/anna/.local/share/antiphon/antiphon.db"),
        ({"HOME": "/home/anna", "XDG_DATA_HOME": "/data"}, "linux", "/data/antiphon/antiphon.db"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/antiphon/antiphon.db"),
        ({"HOME": "/home/anna", "XDG_DATA_HOME": "data"}, "linux", "/home/anna/.local/share/antiphon/antiphon.db"),
        ({"HOME": "/home/anna", "XDG_DATA_HOME": ""}, "linux", "/home/anna/.local/share/antiphon/antiphon.db"),
        ({"HOME": "/Users/anna"}, "darwin", "/Users/anna/Library/Application Support/antiphon/antiphon.db"),
    ],
)
def test_default_path_follows_the_platform(environ: dict[str, str], platform: str, path: str) -> None:
    assert default_path(environ, platform) == Path(path)


def test_default_store_without_a_home_folder_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"neither HOME nor XDG_DATA_HOME is set; set one of them, or \[store\] url to sqlite:////"
    ):
        opened(None, {"HOME": ""})


def test_url_off_disables_the_store() -> None:
    assert opened("off") == "none"


@pytest.mark.io
def test_postgresql_url_has_two_schemes() -> None:
    url = postgres_server.fresh_url()
    assert opened(url) == opened(url.replace("postgresql://", "postgres://")) == "PostgresStore"


@pytest.mark.parametrize(
    ("url", "received"),
    [
        ("mysql://anna:sesame@db/antiphon", "begins with mysql://;"),
        ("anna:sesame@db/antiphon", "is not a supported URL;"),
        ("anna:sesame@db://antiphon", "is not a supported URL;"),
        ("postgresql:anna:sesame@db", "is not a supported URL;"),
        ("", "is not a supported URL;"),
        ("sqlite://", "begins with sqlite:// but has no valid path;"),
        ("sqlite:///", "begins with sqlite:// but has no valid path;"),
        ("sqlite://sesame.db", "begins with sqlite:// but has no valid path;"),
        ("sqlite:///a%00b", "begins with sqlite:// but has no valid path;"),
        ("sqlite:///a.db?key=sesame", "begins with sqlite:// but has no valid path;"),
        ("sqlite:a.db", "is not a supported URL;"),
    ],
)
def test_unknown_url_is_refused_without_showing_a_password(url: str, received: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(url)
    assert str(caught.value).startswith(f"[store] url {received} expected sqlite:///relative.db, ")
    assert "sesame" not in str(caught.value)
