"""Tests of the release tool: its checks with small files, and a whole release (`make release-check`)."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools.release import (
    ROOT,
    ReleaseError,
    check_contents,
    check_equal,
    check_links,
    check_version,
    licence_table,
    normalize_sdist,
    prepare_metadata,
    source_version,
)

from antiphon import __version__
from tools import package_description

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0 — 2026-12-01\n\n## 0.1.0 — 2026-11-18\n"


def make_sdist(file: Path, names: list[str], time: int) -> Path:
    with tarfile.open(file, "w:gz") as sdist:
        for name in names:
            member = tarfile.TarInfo(f"antiphon-1/{name}")
            member.size, member.mtime, member.uid = 2, time, time
            sdist.addfile(member, io.BytesIO(b"ab"))
    return file


def make_wheel(file: Path, names: list[str]) -> Path:
    with zipfile.ZipFile(file, "w") as wheel:
        for name in names:
            wheel.writestr(name, "")
    return file


def test_version_of_the_source_is_that_of_the_package() -> None:
    assert source_version() == __version__


def test_version_must_be_the_newest_release_of_the_changelog() -> None:
    check_version("0.2.0", CHANGELOG)
    for version in ("0.1.0", "0.3.0", "0.2.0.dev0"):
        with pytest.raises(ReleaseError, match=version.replace(".", r"\.")):
            check_version(version, CHANGELOG)


def test_normalized_sdists_with_the_same_files_are_equal(tmp_path: Path) -> None:
    first = make_sdist(tmp_path / "a.tar.gz", ["b", "a"], 1)
    (tmp_path / "x").mkdir()
    second = make_sdist(tmp_path / "x/a.tar.gz", ["a", "b"], 2)
    with pytest.raises(ReleaseError, match=r"two builds differ: a\.tar\.gz"):
        check_equal([first], [second])
    for file in (first, second):
        normalize_sdist(file, 1_700_000_000)
    check_equal([first], [second])
    with tarfile.open(first) as sdist:
        assert [member.name for member in sdist.getmembers()] == ["antiphon-1/a", "antiphon-1/b"]
        assert {member.mtime for member in sdist.getmembers()} == {1_700_000_000}
    assert gzip.decompress(first.read_bytes())


def test_missing_file_of_one_build_is_a_difference(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"a\.tar\.gz"):
        check_equal([make_sdist(tmp_path / "a.tar.gz", ["a"], 1)], [])


def test_wheel_without_its_types_and_files_with_tests_are_refused(tmp_path: Path) -> None:
    names = ["antiphon/py.typed", "antiphon/profiles/openai.toml", "antiphon-1.dist-info/licenses/LICENSE"]
    check_contents(make_wheel(tmp_path / "antiphon-1.whl", names))
    check_contents(make_sdist(tmp_path / "antiphon-1.tar.gz", ["LICENSE", "src/a.py"], 1))
    with pytest.raises(ReleaseError, match=r"lacks antiphon/py\.typed"):
        check_contents(make_wheel(tmp_path / "antiphon-2.whl", names[1:]))
    with pytest.raises(ReleaseError, match=r"contains tests/test_a\.py"):
        check_contents(make_sdist(tmp_path / "antiphon-3.tar.gz", ["LICENSE", "tests/test_a.py"], 1))


def test_wheel_with_relative_links_in_its_description_is_refused(tmp_path: Path) -> None:
    for name, text in (("good", "[a](https://x.test/a.md) [b](#b)"), ("bad", "[a](docs/install.md)")):
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr("a-1.dist-info/METADATA", f"Name: a\n\n{text}\n")
    check_links(tmp_path / "good.whl")
    with pytest.raises(ReleaseError, match=r"bad\.whl has relative links: docs/install\.md"):
        check_links(tmp_path / "bad.whl")


@pytest.mark.parametrize("repository", [None, "https://forge.test/owner/antiphon"])
def test_metadata_of_an_export_is_fit_for_an_index(repository: str | None, tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    prepare_metadata(tmp_path, repository)
    assert package_description.relative_links((tmp_path / "README.md").read_text(encoding="utf-8")) == []
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("urls", {}).get("Source") == repository


def test_package_without_a_licence_is_named() -> None:
    assert "  a 1.0: MIT" in licence_table({"a": ["1.0", "MIT"]})
    with pytest.raises(ReleaseError, match="packages without a licence: b"):
        licence_table({"a": ["1.0", "MIT"], "b": ["1.0", ""]})


@pytest.mark.heavy
@pytest.mark.io
def test_release_is_ready(tmp_path: Path) -> None:
    command = [sys.executable, "tools/release.py", "--out", str(tmp_path / "dist"), "--quick-start"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    names = {file.name for file in (tmp_path / "dist").iterdir()}
    assert {f"antiphon-{__version__}.tar.gz", "sbom.cdx.json"} <= names
