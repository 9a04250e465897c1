"""Provides the sources of a commit to measure: the working tree, or another commit in a temporary git worktree."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

REPOSITORY = Path(__file__).resolve().parent.parent


class Checkout(Struct, frozen=True):
    """The sources of a commit."""

    id: str
    subject: str
    source: Path  # for PYTHONPATH


@contextmanager
def checked_out(commit: str, repository: Path = REPOSITORY) -> Iterator[Checkout]:
    """Checks a commit out into its own git worktree, and removes the worktree at the end."""
    id = _git(repository, "rev-parse", "--short", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / id
        _git(repository, "worktree", "add", "--detach", str(tree), id)
        try:
            yield Checkout(id, _subject(repository, id), tree / "src")
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))


def working_tree(repository: Path = REPOSITORY) -> Checkout:
    """Returns the sources in the working tree. The id ends with `-dirty` if `src` differs from the commit: results and
    documentation may be written during a measurement."""
    id = _git(repository, "rev-parse", "--short", "HEAD")
    if _git(repository, "status", "--porcelain", "--", "src"):
        id += "-dirty"
    return Checkout(id, _subject(repository, "HEAD"), repository / "src")


def _subject(repository: Path, commit: str) -> str:
    return _git(repository, "log", "-1", "--format=%s", commit)


def git_environ() -> dict[str, str]:
    """Returns the environment without the variables that a git hook sets: they select another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=git_environ())
    if result.returncode:
        raise SystemExit(f"git {arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()
