"""Profiles from files: by name, by path, from folders, extending each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ProfileError
from antiphon.profiles import load_profile, profile_names

PLAIN = 'about = "mine"\ndialect = "chat"\n'


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


def test_load_profile_accepts_a_path_or_a_string(tmp_path: Path) -> None:
    write(tmp_path, mine=PLAIN)
    for path in (tmp_path / "mine.toml", str(tmp_path / "mine.toml")):
        assert load_profile(path).name == "mine"


def test_profile_in_a_folder_overrides_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, chat=PLAIN)
    assert load_profile("chat", folders=[tmp_path]).about == "mine"
    assert load_profile("chat").about != "mine"


def test_profile_can_extend_a_shipped_one_of_the_same_name(tmp_path: Path) -> None:
    write(tmp_path, chat='about = "mine"\nextends = "chat"\n', other='about = "other"\nextends = "open-responses"\n')
    assert load_profile("chat", folders=[tmp_path]).wire == load_profile("chat").wire
    assert load_profile(tmp_path / "other.toml").dialect == "responses"


def test_extends_path_is_relative_to_the_folder_of_the_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, base=PLAIN)
    write(inner, mine='about = "x"\nextends = "../base.toml"\n')
    assert load_profile(inner / "mine.toml").dialect == "chat"


def test_circular_extends_is_refused_with_its_chain(tmp_path: Path) -> None:
    write(tmp_path, a='about = ""\nextends = "b"', b='about = ""\nextends = "c"', c='about = ""\nextends = "a"')
    with pytest.raises(ProfileError) as caught:
        load_profile("a", folders=[tmp_path])
    chain = " extends ".join(str(tmp_path / f"{name}.toml") for name in "abca")
    assert f"circular extends: {chain}" in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'a.toml'}, line 2: ")


def test_profile_that_extends_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a='about = ""\nextends = "a"')
    with pytest.raises(ProfileError, match="circular extends"):
        load_profile("a", folders=[tmp_path])


def test_unknown_profile_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'open-response'; did you mean 'open-responses'\?"):
        load_profile("open-response")
    write(tmp_path, mine='about = ""\nextends = "chatt"')
    with pytest.raises(ProfileError, match=r"mine\.toml, line 2: extends 'chatt': unknown profile 'chatt'; did"):
        load_profile("mine", folders=[tmp_path])


def test_unreadable_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml: cannot be read: No such file"):
        load_profile(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b'about = "\xff"')
    with pytest.raises(ProfileError, match=r"bad\.toml: is not UTF-8"):
        load_profile(tmp_path / "bad.toml")


def test_profile_names_lists_folders_and_shipped_profiles(tmp_path: Path) -> None:
    write(tmp_path, mine=PLAIN)
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    shipped = profile_names()
    assert {"chat", "open-responses", "openai"} <= set(shipped)
    assert profile_names(folders=[tmp_path, tmp_path / "none"]) == sorted([*shipped, "mine"])
