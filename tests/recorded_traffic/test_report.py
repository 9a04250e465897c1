"""A report fails for too few recordings, for a difference of no class, and for a class of no difference."""

from __future__ import annotations

from tests.recorded_traffic.classes import DifferenceClass
from tests.recorded_traffic.difference import Difference, Finding
from tests.recorded_traffic.recording import Recording, Skipped
from tests.recorded_traffic.report import MIN_PLAYED, Run, findings_of, make_report

RECORDING = Recording(
    dialect="chat",
    kind="whole",
    request=None,
    model="m",
    host="",
    status=200,
    headers={},
    answer=b"{}",
    is_stream=False,
    source="a.yml#1",
)
FINDING = Finding(
    difference=Difference(check="usage", client="chat", server="gemini", path="input", change="changed"),
    detail="1 → 2",
    source="a.yml#1",
)
KNOWN = DifferenceClass(name="known", reason="…", checks=("usage",))


def run(played: int, findings: list[Finding], classes: list[DifferenceClass]) -> Run:
    skipped = [Skipped(source="b.json", reason="JSON of another API")]
    return Run(file_count=2, recordings=[RECORDING] * played, skipped=skipped, findings=findings, classes=classes)


def test_report_counts_files_recordings_and_differences() -> None:
    report = make_report(run(MIN_PLAYED, [FINDING], [KNOWN]))
    assert report.failures == []
    assert "files found: 2" in report.text
    assert "1 JSON of another API" in report.text
    assert "played: 1000" in report.text
    assert "  requests: 0 of 0" in report.text or "  requests: 1000 of 1000" in report.text
    assert "known: usage chat → gemini: input changed (1; 1 → 2)" in report.text
    assert report.text.endswith("OK")


def test_report_fails_for_too_few_recordings() -> None:
    [failure] = make_report(run(MIN_PLAYED - 1, [FINDING], [KNOWN])).failures
    assert failure == "999 recordings were played; expected at least 1000"


def test_report_fails_for_a_difference_of_no_class() -> None:
    report = make_report(run(MIN_PLAYED, [FINDING], []))
    assert report.failures == ["1 differences belong to no class"]
    assert "usage chat → gemini: input changed (1 → 2) in a.yml#1" in report.text


def test_report_fails_for_a_class_of_no_difference() -> None:
    report = make_report(run(MIN_PLAYED, [], [KNOWN]))
    assert report.failures == ["nothing belongs to the class 'known': remove it"]


def test_findings_of_a_class_are_listed() -> None:
    other = DifferenceClass(name="other", reason="…", checks=("text",))
    assert findings_of(run(1, [FINDING], [other, KNOWN]), "known") == [FINDING]
    assert findings_of(run(1, [FINDING], [other, KNOWN]), "other") == []


def test_report_fails_for_a_pattern_of_no_difference() -> None:
    """A class must not allow more than what occurs."""
    wide = DifferenceClass(name="wide", reason="…", checks=("usage", "text"), paths=("input", "output"))
    report = make_report(run(MIN_PLAYED, [FINDING], [wide]))
    assert report.failures == [
        f"nothing in the class 'wide' matches {pattern!r}: remove it" for pattern in ("text", "output")
    ]


def test_refused_recording_is_not_unchanged() -> None:
    """An answer that the client did not get is not compared."""
    refused = Difference(check="refused", client="chat", server="chat", path="502", change="added")
    report = make_report(run(1, [Finding(difference=refused, detail="", source="a.yml#1")], []))
    assert "  whole answers: 0 of 1" in report.text
