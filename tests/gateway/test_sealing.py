"""`gateway/sealing`: sealed content opens for its owner, with any current or former key, and for nobody else."""

from __future__ import annotations

import threading
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from antiphon.config import CompactionConfig, Config, ServerConfig, StoreConfig
from antiphon.errors import ConfigError, UnsupportedParameter
from antiphon.gateway.sealing import (
    KEY_FILE_SUFFIX,
    SEAL_MARK,
    Seal,
    find_sealing_keys,
    has_seal_mark,
    load_or_create_key,
)

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b"the launch is on Tuesday" * 10


def seal(*keys: bytes) -> Seal:
    return Seal(lambda: keys)


def test_sealed_content_opens_and_is_unreadable() -> None:
    """CMP-2: opaque, and readable by every replica that has the key."""
    sealed = seal(NEW).encrypt("alice", SECRET)
    assert has_seal_mark(sealed)
    assert b"Tuesday" not in sealed.encode()
    assert seal(NEW).decrypt("alice", sealed) == SECRET
    assert seal(NEW).encrypt("alice", SECRET) != sealed  # equal content gives different seals


def test_seal_of_another_owner_does_not_open() -> None:
    """CMP-2, and separation of tenants."""
    sealed = seal(NEW).encrypt("alice", SECRET)
    for owner in ("bob", "", "alice\0", "Alice"):
        assert seal(NEW).decrypt(owner, sealed) is None


def test_changed_seal_does_not_open() -> None:
    """CMP-2: tamper-proof at every position."""
    sealed = seal(NEW).encrypt("alice", b"abc")
    assert seal(NEW).decrypt("alice", sealed) == b"abc"
    for place in range(len(sealed)):
        other = "A" if sealed[place] != "A" else "B"
        opened = seal(NEW).decrypt("alice", sealed[:place] + other + sealed[place + 1 :])
        assert opened is None or (place == len(sealed) - 1 and opened == b"abc")  # whose last bits may be unused
    assert seal(NEW).decrypt("alice", sealed + "!") is None
    for cut in range(len(sealed)):
        assert seal(NEW).decrypt("alice", sealed[:cut]) is None


@pytest.mark.parametrize(
    "text", ["", SEAL_MARK, SEAL_MARK + "ä", SEAL_MARK + "A", "antiphon2." + "A" * 80, "A" * 80, SEAL_MARK + "A" * 80]
)
def test_unsealed_text_does_not_open(text: str) -> None:
    assert seal(NEW).decrypt("alice", text) is None


def test_key_rotation_keeps_old_seals_readable() -> None:
    """CMP-2: the first key seals, all of them open."""
    before = seal(OLD).encrypt("alice", SECRET)
    changed = seal(NEW, OLD)
    assert changed.decrypt("alice", before) == SECRET
    after = changed.encrypt("alice", SECRET)
    assert seal(NEW).decrypt("alice", after) == SECRET
    assert seal(OLD).decrypt("alice", after) is None
    assert seal(NEW).decrypt("alice", before) is None


def test_seal_mark_identifies_our_seals() -> None:
    assert has_seal_mark("antiphon1.x")
    assert has_seal_mark("antiphon27.x")
    assert not has_seal_mark("gAAAAABpM0Yj-...=")
    assert not has_seal_mark(" antiphon1.x")


# Origin of keys


def test_keys_come_from_the_environment_in_hex_or_base64() -> None:
    names = ["A", "B", "C"]
    environ = {
        "A": NEW.hex(),
        "B": b64encode(b"\xff" * 32).decode(),
        "C": urlsafe_b64encode(b"\xfe" * 32).decode().rstrip("="),
    }
    config = Config(compaction=CompactionConfig(keys_env=names), store=StoreConfig(url="postgresql://h/d"))
    assert find_sealing_keys(config, environ)() == [NEW, b"\xff" * 32, b"\xfe" * 32]


@pytest.mark.parametrize("value", ["", "short", "zz" * 32, "ab" * 31, "é" * 64])
def test_invalid_key_file_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        CompactionConfig(keys_env=["A"]).keys({"A": value})


def test_sqlite_key_is_created_once_beside_the_database(tmp_path: Path) -> None:
    """CMP-2: every worker, and the next start, uses the same key."""
    config = Config(store=StoreConfig(url=f"sqlite:///{tmp_path}/new/antiphon.db"), server=ServerConfig(workers=4))
    sealed = Seal(find_sealing_keys(config, {})).encrypt("alice", SECRET)
    assert Seal(find_sealing_keys(config, {})).decrypt("alice", sealed) == SECRET
    (file,) = (tmp_path / "new").iterdir()
    assert file.name == f"antiphon.db{KEY_FILE_SUFFIX}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(file.read_text().strip())) == 32


def test_key_file_is_created_only_on_first_use(tmp_path: Path) -> None:
    Seal(find_sealing_keys(Config(store=StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")), {}))
    assert list(tmp_path.iterdir()) == []


def test_concurrent_key_creation_gives_one_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    begin = threading.Barrier(8)

    def make() -> None:
        begin.wait()
        keys.append(load_or_create_key(tmp_path / "key"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("written", ["", "no key", "ab" * 31, "é"])
def test_file_without_a_key_is_an_error(tmp_path: Path, written: str) -> None:
    (tmp_path / "key").write_text(written, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"contains no valid key.*keys_env"):
        load_or_create_key(tmp_path / "key")


def test_unwritable_key_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read or created"):
        load_or_create_key(tmp_path / "file" / "key")


def test_process_without_a_store_has_its_own_key() -> None:
    config = Config(store=StoreConfig(url="off"))
    one, other = Seal(find_sealing_keys(config, {})), Seal(find_sealing_keys(config, {}))
    sealed = one.encrypt("alice", SECRET)
    assert one.decrypt("alice", sealed) == SECRET
    assert other.decrypt("alice", sealed) is None


@pytest.mark.parametrize(
    "config",
    [
        Config(store=StoreConfig(url="postgresql://h/d")),
        Config(store=StoreConfig(url="off"), server=ServerConfig(workers=2)),
    ],
)
def test_missing_configured_key_is_refused_at_first_use(config: Config) -> None:
    """PostgreSQL is shared by replicas, so the key must be shared too."""
    without = Seal(find_sealing_keys(config, {}))
    with pytest.raises(UnsupportedParameter, match="keys_env"):
        without.check_keys()
    assert without.decrypt("alice", seal(NEW).encrypt("alice", SECRET)) is None


def test_keys_are_loaded_for_a_worker() -> None:
    keys = seal(NEW, OLD).load_keys()
    assert list(keys) == [NEW, OLD]
    assert seal(*keys).decrypt("alice", seal(OLD).encrypt("alice", SECRET)) == SECRET
