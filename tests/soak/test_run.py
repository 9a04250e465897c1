"""A small soak run: its arithmetic, and a few hundred requests to a real process."""

from __future__ import annotations

import pytest
from soak.run import Sample, main, slope

from soak import run

pytestmark = pytest.mark.without_coverage


def test_slope_is_that_of_a_line_through_the_samples() -> None:
    steep, error = slope([Sample(at * 1000, 40 + at * 0.01, 10) for at in range(20)])
    assert steep == pytest.approx(1.0)
    assert error == pytest.approx(0.0, abs=1e-6)


def test_slope_of_constant_samples_is_within_its_error() -> None:
    steep, error = slope([Sample(at * 1000, 40 + at % 2, 10) for at in range(20)])
    assert abs(steep) < 2 * error


@pytest.mark.io
def test_small_soak_passes_and_prints_a_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "ROUNDS", 5)
    assert main(["--requests", "200"]) == 0
    output = capsys.readouterr().out
    assert "200 requests" in output
    assert "0 wrong" in output
    assert "slope:" in output


@pytest.mark.io
def test_soak_fails_for_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The gateway does not have this key."""
    monkeypatch.setattr(run, "ROUNDS", 5)
    monkeypatch.setattr(run, "KEY", "another")
    assert main(["--requests", "20"]) == 1
    assert "WRONG" in capsys.readouterr().out
