"""`gateway/runner_name`: whether the process of a runner has ended is known without a clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.gateway.runner_name import current_process, has_ended, make_runner_name, read_text

OWN = current_process()


def test_own_process_has_not_ended() -> None:
    assert all(OWN)
    assert not has_ended(make_runner_name("run_1", OWN), OWN)


@pytest.mark.parametrize(
    ("changes", "is_ended"),
    [
        ({"started": "1"}, True),  # the number was used again
        ({"pid": "999999999"}, True),
        ({"boot": "abc"}, True),
        ({"boot": "abc", "machine": "def"}, False),  # another machine: not known
        ({"namespace": "1", "pid": "999999999"}, False),  # another container: not known
    ],
)
def test_end_of_a_process_is_recognised(changes: dict[str, str], is_ended: bool) -> None:
    assert has_ended(make_runner_name("run_1", OWN._replace(**changes)), OWN) == is_ended


@pytest.mark.parametrize("name", ["run_1", "run_1@", "run_1@a.b.c", "", "run_1@zz.aa.1.1.1"])
def test_name_of_another_form_is_not_known(name: str) -> None:
    assert not has_ended(name, OWN)


def test_nothing_is_known_without_the_files_of_linux() -> None:
    own = current_process(lambda _: "")
    assert (own.boot, own.namespace, own.started) == ("", "", "")
    assert not has_ended(make_runner_name("run_1", OWN._replace(pid="999999999")), own)


def test_missing_file_is_read_as_empty(tmp_path: Path) -> None:
    assert read_text(str(tmp_path / "missing")) == ""


@pytest.mark.io
def test_killed_process_has_ended() -> None:
    code = "from antiphon.gateway.runner_name import *; print(make_runner_name('run_1', current_process()), flush=True); input()"
    environ = {**os.environ, "PYTHONPATH": "src"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not has_ended(name, OWN)
        process.kill()
        process.wait(60)
        assert has_ended(name, OWN)
