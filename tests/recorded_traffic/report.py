"""The report of a run: what was found, read, skipped and played, the differences by class, and the verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from tests.recorded_traffic.classes import DifferenceClass, classify
from tests.recorded_traffic.difference import Difference, Finding
from tests.recorded_traffic.recording import DIALECTS, Recording, Skipped

MIN_PLAYED: Final = 1000
KINDS: Final = ("whole", "stream", "error")


class Run(Struct, frozen=True, kw_only=True):
    """Everything that a report is made of."""

    file_count: int
    recordings: Sequence[Recording]
    skipped: Sequence[Skipped]
    findings: Sequence[Finding]
    classes: Sequence[DifferenceClass]


class Report(Struct, frozen=True, kw_only=True):
    """The text of a report, and the reasons why the run failed."""

    text: str
    failures: list[str]


def make_report(run: Run) -> Report:
    """The report of a run."""
    by_class: defaultdict[str, list[Finding]] = defaultdict(list)
    unknown: list[Finding] = []
    for finding in run.findings:
        known = classify(finding.difference, run.classes)
        (unknown if known is None else by_class[known.name]).append(finding)
    unused = [each.name for each in run.classes if each.name not in by_class]
    failures: list[str] = []
    if len(run.recordings) < MIN_PLAYED:
        failures.append(f"{len(run.recordings)} recordings were played; expected at least {MIN_PLAYED}")
    if unknown:
        failures.append(f"{len(unknown)} differences belong to no class")
    failures += [f"nothing belongs to the class {name!r}: remove it" for name in unused]
    failures += [failure for each in run.classes for failure in _unused_patterns(each, by_class.get(each.name, []))]
    sections = [
        _files_section(run),
        _played_section(run.recordings),
        _identity_section(run),
        _classes_section(run.classes, by_class),
        _unknown_section(unknown),
        "\n".join(f"FAILED: {failure}" for failure in failures) or "OK",
    ]
    return Report(text="\n\n".join(filter(None, sections)), failures=failures)


def _unused_patterns(known: DifferenceClass, findings: list[Finding]) -> list[str]:
    """A class allows nothing that does not occur."""
    if not findings:
        return []
    unused = known.unused_patterns([finding.difference for finding in findings])
    return [f"nothing in the class {known.name!r} matches {pattern!r}: remove it" for pattern in unused]


def findings_of(run: Run, name: str) -> list[Finding]:
    """The findings of one class."""
    return [
        finding
        for finding in run.findings
        if (known := classify(finding.difference, run.classes)) is not None and known.name == name
    ]


def _files_section(run: Run) -> str:
    read = {_file_of(recording.source) for recording in run.recordings}
    reasons = Counter(skipped.reason for skipped in run.skipped)
    lines = [
        f"files found: {run.file_count}",
        f"files read (with recordings that were played): {len(read)}",
        f"skipped: {len(run.skipped)}",
        *(f"  {count:6} {reason}" for reason, count in reasons.most_common()),
    ]
    return "\n".join(lines)


def _file_of(source: str) -> str:
    return source.rpartition("#")[0] or source


def _played_section(recordings: Sequence[Recording]) -> str:
    counts = Counter((recording.dialect, recording.kind) for recording in recordings)
    lines = [f"played: {len(recordings)}", f"  {'':10}" + "".join(f"{kind:>8}" for kind in KINDS) + f"{'all':>8}"]
    for dialect in DIALECTS:
        numbers = [counts[dialect, kind] for kind in KINDS]
        lines.append(f"  {dialect:10}" + "".join(f"{number:8}" for number in [*numbers, sum(numbers)]))
    lines.append(f"  without a recorded request: {sum(recording.request is None for recording in recordings)}")
    return "\n".join(lines)


def _identity_section(run: Run) -> str:
    """How many requests and answers arrive unchanged on the other side, if client and server speak one dialect."""
    changed: defaultdict[str, set[str]] = defaultdict(set)
    for finding in run.findings:
        changed[finding.difference.check].add(finding.source)
        if finding.difference.check == "refused" and finding.difference.client == finding.difference.server:
            for check in ("request", "answer", "events"):
                changed[check].add(finding.source)
    answered = [recording for recording in run.recordings if not recording.is_error]
    requests = [recording.source for recording in run.recordings if recording.request is not None]
    lines = ["unchanged within a dialect:", f"  requests: {_count_others(requests, changed['request'])}"]
    for name, check in (("whole answers", "answer"), ("streams", "events")):
        sources = [recording.source for recording in answered if recording.is_stream == (check == "events")]
        lines.append(f"  {name}: {_count_others(sources, changed[check])}")
    return "\n".join(lines)


def _count_others(sources: list[str], changed: set[str]) -> str:
    return f"{sum(source not in changed for source in sources)} of {len(sources)}"


def _classes_section(classes: Sequence[DifferenceClass], by_class: dict[str, list[Finding]]) -> str:
    lines = ["differences by class (differences, recordings, class, most frequent difference):"]
    for each in sorted(classes, key=lambda one: -len(by_class.get(one.name, ()))):
        findings = by_class.get(each.name, [])
        sources = len({finding.source for finding in findings})
        lines.append(f"  {len(findings):6} {sources:5} {each.name}: {_most_frequent(findings)}")
    return "\n".join(lines)


def _most_frequent(findings: list[Finding]) -> str:
    if not findings:
        return "-"
    counts: Counter[Difference] = Counter(finding.difference for finding in findings)
    difference, count = counts.most_common(1)[0]
    detail = next(finding.detail for finding in findings if finding.difference == difference)
    return f"{difference} ({count}; {detail[:60]})" if detail else f"{difference} ({count})"


def _unknown_section(unknown: list[Finding]) -> str:
    if not unknown:
        return ""
    counts: Counter[Difference] = Counter(finding.difference for finding in unknown)
    examples = {finding.difference: finding for finding in reversed(unknown)}
    lines = ["differences that belong to no class:"]
    for difference, count in counts.most_common():
        example = examples[difference]
        lines.append(f"  {count:6} {difference} ({example.detail}) in {example.source}")
    return "\n".join(lines)
