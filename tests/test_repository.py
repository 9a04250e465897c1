"""The repository is self-contained: no file in it reads or names a path outside of it, and no test is skipped."""

from __future__ import annotations

import ast
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from tests.sources import REPO, source_files

pytestmark = pytest.mark.without_coverage
PLACES = [
    "src",
    "tests",
    "tools",
    "bench",
    "soak",
    "examples",
    "integrations",
    "docs",
    "README.md",
    "Makefile",
    ".ci/run",
]
FILES = {path.relative_to(REPO).as_posix(): path.read_text(encoding="utf-8") for path in source_files(*PLACES)}
del FILES["tests/test_repository.py"]  # it has examples of such paths
# Relative paths that are input to the gateway, not paths of files.
INPUT = {("tests/api/test_security.py", "../../../")}
# A folder beside the repository that tests read before.
FORMERLY_BESIDE = re.compile(r"(?<![\w./-])shared/\w")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_files_name_no_path_outside_of_the_repository(place: str) -> None:
    files = {name: text for name, text in FILES.items() if name.startswith(place)}
    assert files
    outside = [
        (name, path) for name, text in files.items() for path in _outside(name, text) if (name, path) not in INPUT
    ]
    assert outside == []


def test_named_pages_are_in_the_repository() -> None:
    root_pages = [path.name for path in REPO.glob("*.md")]
    places = source_files("docs", "bench", "examples", *root_pages)
    pages = [path.relative_to(REPO).as_posix() for path in places]
    named = {
        (name, page)
        for name, text in FILES.items()
        if not name.endswith(".md")  # `tests/test_docs.py` follows their links
        for page in re.findall(r"(?<![\w/*.-])(?:[\w-]+/)*[\w-]+\.md\b", text)
    }
    assert len(named) > 50
    assert [
        (name, page)
        for name, page in sorted(named)
        if not any(f"/{existing}".endswith(f"/{page}") for existing in pages)
    ] == []


def test_tests_are_never_skipped() -> None:
    skips = re.compile(r"pytest\.(?:skip|importorskip|xfail|mark\.(?:skip|skipif|xfail))\b|\bSkipTest\b")
    assert [name for name, text in FILES.items() if name.startswith("tests/") and skips.search(text)] == []


@pytest.mark.parametrize(
    ("name", "text", "outside"),
    [
        ("docs/a.md", "[examples](../examples), [b](b.md)", []),
        ("docs/a.md", "[spec](../../spec/requirements.md)", ["../../spec/requirements.md"]),
        ("tests/generate/a.py", "Path(__file__).resolve().parents[2] / 'docs'", []),
        ("tests/generate/a.py", "Path(__file__).resolve().parents[3] / 'spec'", ["parents[3]"]),
        ("tools/a.py", "Path(__file__).resolve().parent.parent", []),
        ("tools/a.py", "Path(__file__).parent.parent.parent", ["parent.parent.parent"]),
        ("tools/a.py", "REPO.parent / 'spec'", ["REPO.parent"]),
        ("Makefile", "\tcat ../spec.json", ["../spec.json"]),
        ("tests/a.py", "the schema is in `shared/spec`", ["shared/s"]),
        ("bench/native/a.c", ".../messages and /health/../v1 are no paths of files", []),
    ],
)
def test_paths_outside_of_the_repository_are_detected(name: str, text: str, outside: list[str]) -> None:
    assert list(_outside(name, text)) == outside


def _outside(name: str, text: str) -> Iterator[str]:
    """The paths in the text of a file that lead out of the repository; relative ones are resolved from the folder of
    the file."""
    yield from FORMERLY_BESIDE.findall(text)
    yield from re.findall(r"\b(?:REPO|ROOT)\.parent\b", text)
    folder = PurePosixPath(name).parent.as_posix()
    for path in re.findall(r"(?<![\w./-])[\w.-][\w./-]*", text):
        if re.search(r"(?<![\w.])\.\./", path) and posixpath.normpath(posixpath.join(folder, path)).startswith(".."):
            yield path
    for chain, number in re.findall(r"__file__\)(?:\.resolve\(\))?\.(parent(?:\.parent)*\b|parents\[(\d+)\])", text):
        levels = int(number) + 1 if number else chain.count("parent")
        if levels > len(PurePosixPath(name).parts):
            yield chain


def test_api_http_and_ops_do_not_catch_every_exception() -> None:
    """An unexpected error reaches the request scope, or the callback of its task, which logs it."""
    catch_alls = [
        f"{path.relative_to(REPO)}:{node.lineno}"
        for package in ("api", "http", "ops")
        for path in source_files(f"src/antiphon/{package}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert catch_alls == []


def test_npm_locks_pin_every_package_and_hold_no_address() -> None:
    """An address of a registry in a lock file decides where packages come from. `.npmrc` keeps npm from writing them."""
    locks = [path for path in source_files("integrations", "tests") if path.name == "package-lock.json"]
    assert locks
    for lock in locks:
        assert "omit-lockfile-registry-resolved=true\n" in (lock.parent / ".npmrc").read_text(encoding="utf-8")
        packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
        del packages[""]  # the project itself
        assert [path for path, package in packages.items() if "integrity" not in package] == []
        for package in packages.values():
            package.pop("funding", None)
        assert "://" not in json.dumps(packages)


def test_dependencies_have_the_minor_version_of_the_lock_as_their_floor() -> None:
    """Older versions are not tested. The floor of `cryptography` is the first version without a known vulnerability."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = (REPO / "requirements-dev.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\d+\.\d+)", requirements, re.MULTILINE))
    floors = [*project["dependencies"], *project["optional-dependencies"]["otel"]]
    assert "cryptography>=48.0.1" in floors
    assert {floor for floor in floors if not floor.startswith("cryptography")} == {
        f"{name}>={pins[name]}" for name in (floor.partition(">=")[0] for floor in floors) if name != "cryptography"
    }
