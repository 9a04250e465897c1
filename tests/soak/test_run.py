"""Tests of the soak test: the slope of the memory, and a few hundred requests to a real process."""

from __future__ import annotations

import pytest
from soak.run import Sample, main, memory_slope

from soak import run

pytestmark = pytest.mark.without_coverage


def test_memory_slope_equals_the_slope_of_a_line() -> None:
    slope, error = memory_slope([Sample(number * 1000, 40 + number * 0.01, 10) for number in range(20)])
    assert slope == pytest.approx(1.0)
    assert error == pytest.approx(0.0, abs=1e-6)


def test_memory_slope_of_constant_samples_is_within_its_error() -> None:
    slope, error = memory_slope([Sample(number * 1000, 40 + number % 2, 10) for number in range(20)])
    assert abs(slope) < 2 * error


@pytest.mark.io
def test_small_soak_passes_and_prints_a_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "ROUNDS", 5)
    assert main(["--requests", "200"]) == 0
    output = capsys.readouterr().out
    assert "200 requests" in output
    assert ", 0 wrong answers" in output
    assert "slope:" in output


@pytest.mark.io
def test_soak_fails_for_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The gateway is started with a key that the clients do not send."""
    monkeypatch.setattr(run, "ROUNDS", 5)
    monkeypatch.setattr(run, "KEY", "another")
    assert main(["--requests", "20"]) == 1
    assert "PROBLEM" in capsys.readouterr().out
