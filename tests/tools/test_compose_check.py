"""Tests of the parts of `make check-compose` that need no Docker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.compose_check import CheckError

from tools import compose_check

pytestmark = pytest.mark.io

BIN = "#!/bin/sh\n"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `docker` in the path. Its text is that of the returned file."""
    program = tmp_path / "docker"
    program.write_text(BIN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_turns_are_counted_in_the_log_of_a_gateway(docker: Path) -> None:
    entries = [{"path": "/v1/responses", "status": 200}, {"path": "/v1/responses", "status": 401}, {"path": "/livez"}]
    lines = "\n".join(["Press Ctrl-C to stop.", *map(json.dumps, entries)])
    docker.write_text(f"{BIN}cat >&2 <<'END'\n{lines}\nEND\n")
    assert compose_check.turns_of("gateway-1") == 1


def test_failed_command_is_reported_with_its_output(docker: Path) -> None:
    docker.write_text(f"{BIN}echo 'no such image' >&2; exit 3\n")
    with pytest.raises(CheckError, match=r"docker images x ended with 3: no such image"):
        compose_check.docker("images", "x")


def test_condition_that_never_holds_fails_within_its_limit() -> None:
    with pytest.raises(CheckError, match="not ready within 0 s"):
        compose_check.await_condition(lambda: False, "not ready", limit=0)


def test_stand_in_has_the_name_that_the_dockerfile_uses() -> None:
    assert compose_check._word_after("ARG BASE=", compose_check.ROOT / "Dockerfile").startswith("python:3.")
