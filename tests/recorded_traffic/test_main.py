"""The command needs a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recorded_traffic.__main__ import main
from tests.recorded_traffic.test_run import recording

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.mark.parametrize("arguments", [[], ["missing-folder"]])
def test_command_without_a_folder_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "make test-recordings CORPUS=FOLDER" in capsys.readouterr().err


def test_command_with_too_few_recordings_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = '{"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]}'
    (tmp_path / "a.json").write_text(answer, encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert "FAILED: 1 recordings were played; expected at least 1000" in capsys.readouterr().out


def test_command_shows_the_differences_of_a_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = recording("responses").answer
    (tmp_path / "a.json").write_bytes(answer)
    assert main([str(tmp_path), "--show", "responses: id of the response"]) == 0
    assert "answer responses → responses: id changed" in capsys.readouterr().out
