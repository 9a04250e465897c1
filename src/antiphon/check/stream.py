"""Check a recorded stream: its form, the shape of each event, and the grammar of the whole stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from antiphon.check.findings import Flaw, excerpt
from antiphon.check.lenient_decoding import ShapeProblem, decode_with_problems, join_problems
from antiphon.check.published_form import decode_event
from antiphon.check.sse_form import event_type_of, judge_form, parse_blocks
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.grammar import Grammar, Violation
from antiphon.protocol.response import Response


class JudgedStream(Struct, frozen=True):
    """The events of a stream, and its flaws."""

    events: list[StreamEvent]
    flaws: list[Flaw]

    @property
    def response(self) -> Response | None:
        """The response of the terminal event."""
        return next((event.response for event in reversed(self.events) if isinstance(event, TerminalEvent)), None)

    def flaws_of(self, *rows: str) -> list[Flaw]:
        return [flaw for flaw in self.flaws if flaw.row in rows]


def judge_stream(body: bytes) -> JudgedStream:
    """Check a whole recorded stream."""
    blocks = parse_blocks(body)
    judge = _StreamJudge()
    for block in blocks:
        if block.data_lines and not block.is_done:
            judge.feed(block.data)
    return JudgedStream(judge.events, judge_form(blocks) + judge.finish())


class _StreamJudge:
    """Decodes events one by one, and checks each against its shape and the grammar."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self._flaws: list[Flaw] = []
        self._reported: set[tuple[str, str | None]] = set()
        self._grammar: Grammar | None = Grammar()
        self._next_number = 0  # the expected sequence number of the next event

    def feed(self, data: bytes) -> None:
        kind = event_type_of(data)
        event, problems = decode_with_problems(
            data, decode_event, {"sequence_number": self._next_number, "status": _expected_status(kind)}
        )
        for row, row_problems in _group_by_row(kind, problems).items():
            self._report_once(
                Flaw(row, f"{kind or 'an event'}: {join_problems(row_problems)}", excerpt(data)),
                "" if row == "STR-5" else kind,
            )
        if event is None:
            self._grammar = None  # without this event, the grammar would misjudge the following ones
            return
        self.events.append(event)
        self._next_number = event.sequence_number + 1
        if self._grammar is not None:
            self._add_violations(self._grammar.feed(event), data)

    def finish(self) -> list[Flaw]:
        if self._grammar is not None:
            self._add_violations(self._grammar.finish(), b"")
        return self._flaws

    def _add_violations(self, violations: Iterable[Violation], data: bytes) -> None:
        for violation in violations:
            location = "" if violation.sequence is None else f"event {violation.sequence}: "
            self._flaws.append(Flaw(violation.row, location + violation.message, excerpt(data)))

    def _report_once(self, flaw: Flaw, kind: str | None) -> None:
        """Add a flaw once per event type, because all deltas of a stream share it; a missing number once per stream."""
        if (flaw.row, kind) not in self._reported:
            self._reported.add((flaw.row, kind))
            self._flaws.append(flaw)


def _group_by_row(kind: str | None, problems: list[ShapeProblem]) -> dict[str, list[ShapeProblem]]:
    problems_by_row: dict[str, list[ShapeProblem]] = {}
    for problem in problems:
        problems_by_row.setdefault("STR-5" if problem.path == "sequence_number" else _row_of(kind or ""), []).append(
            problem
        )
    return problems_by_row


def _row_of(kind: str) -> str:
    return next((row for prefix, row in ROWS_BY_PREFIX if kind.startswith(prefix)), "HTTP-3")


def _expected_status(kind: str | None) -> str:
    """Return the status that the item or the response of an event should have."""
    suffix = (kind or "").rpartition(".")[2]
    return (
        suffix
        if suffix in ("completed", "incomplete", "failed", "queued")
        else "completed"
        if suffix == "done"
        else "in_progress"
    )


ROWS_BY_PREFIX: Final = (
    ("response.created", "STR-1"),
    ("response.in_progress", "STR-1"),
    ("response.queued", "STR-1"),
    ("response.completed", "STR-7"),
    ("response.incomplete", "STR-7"),
    ("response.failed", "STR-7"),
    ("response.output_item.added", "STR-2"),
    ("response.output_item.done", "STR-4"),
    ("response.content_part", "STR-3"),
    ("response.output_text.annotation", "STR-11"),
    ("response.output_text", "STR-3"),
    ("response.refusal", "STR-11"),
    ("response.function_call_arguments", "STR-9"),
    ("response.custom_tool_call_input", "STR-9"),
    ("response.reasoning", "STR-10"),
    ("error", "STR-8"),
)
