"""`antiphon check`: check a server, or a recorded stream, against Open Responses, and print each case when it ends."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import msgspec

from antiphon.check.case import CaseOutcome, CheckCase, Verdict, is_conformant
from antiphon.check.catalogue import CASES, CASES_BY_ID
from antiphon.check.findings import CheckFinding
from antiphon.check.run import first_model, run_cases
from antiphon.check.session import CheckedServer, CheckTarget, NoAnswer
from antiphon.check.stream import judge_stream
from antiphon.cli.exits import FAILED, OK, CommandFailed, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import StatusLine, TextStyle, TextStyler, one_line, printable_json
from antiphon.config import Timeouts
from antiphon.protocol.suggestions import did_you_mean
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "check",
        help=summary,
        description="Sends a server the requests that Open Responses clients send, and reports which requirements it "
        "violates: what was sent, what was received and what was expected. The check needs only the "
        "address of the server.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the URL of the server, with or without /v1")
    parser.add_argument("--model", metavar="M", help="the model to use (default: the first that the server lists)")
    parser.add_argument("--key-env", metavar="VAR", help="the environment variable that holds the key for the server")
    parser.add_argument("--case", metavar="ID", action="append", help="run only this case; may be repeated")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=parse_seconds,
        default=60.0,
        help="the time limit for one answer, in seconds (default: 60)",
    )
    parser.add_argument("--file", metavar="F", type=Path, help="check a recorded event stream instead of a server")
    parser.add_argument("--list", action="store_true", help="list the cases and their requirements")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    cases = _select_cases(args.case)
    if args.list:
        _write_cases(cases, out, is_json=args.json)
        return OK
    if args.file is not None:
        if args.url is not None:
            raise InvalidUsage("expected either URL or --file, got both: a recorded stream is checked without a server")
        return _check_file(args.file, out, TextStyler(out, environ), is_json=args.json)
    if args.url is None:
        raise InvalidUsage("nothing to check; give the URL of a server, or a recorded stream with --file")
    target = CheckTarget(
        base_url=server_url(args.url),
        model=args.model or "",
        key=key_from_environ(args.key_env, environ),
        timeouts=Timeouts(
            connect=min(args.timeout, 10.0), first_byte=args.timeout, idle=args.timeout, total=args.timeout
        ),
    )
    with StatusLine(err, environ) as status:
        table = _Table(out, TextStyler(out, environ), is_json=args.json, status=status, case_count=len(cases))
        target, outcomes = asyncio.run(_check_server(target, cases, table, err, transport or HttpTransport(environ)))
    table.finish(outcomes, {"url": target.base_url, "model": target.model})
    return OK if is_conformant(outcomes) else FAILED


def server_url(text: str) -> str:
    """Return the address of a server up to the version, from an address with or without it."""
    url = text.strip()
    url = url if "://" in url else f"http://{url}"
    if "@" in url:
        # The address is not shown: it may contain a password.
        raise InvalidUsage(
            "the URL of a server must not contain a user name or a password; use --key-env to name the "
            "variable that holds the key"
        )
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or parts.query or parts.fragment or not VISIBLE_ASCII.fullmatch(url):
        raise InvalidUsage(f"invalid server URL {one_line(text)!r}: expected a URL such as http://127.0.0.1:8080/v1")
    return url.rstrip("/").removesuffix("/v1") + "/v1"


async def _check_server(
    target: CheckTarget,
    cases: list[CheckCase],
    table: _Table,
    err: TextIO,
    transport: Transport,
) -> tuple[CheckTarget, list[CaseOutcome]]:
    try:
        table.status.show(f"asking {target.base_url} for its models")
        # Also sent if the model is given: without a server, no case is run.
        first_listed = await first_model(CheckedServer(target, transport))
        if not target.model:
            if first_listed is None:
                raise InvalidUsage("the server lists no models; choose one with --model")
            target = msgspec.structs.replace(target, model=first_listed)
        table.status.clear()
        err.write(f"{target.base_url}, model {one_line(target.model)}, {len(cases)} cases\n")
        table.show_progress()
        return target, await run_cases(CheckedServer(target, transport), cases, table.write_outcome)
    except NoAnswer as fault:
        raise CommandFailed(f"{target.base_url}: {fault}") from None
    finally:
        await transport.close()


def _check_file(file: Path, out: TextIO, paint: TextStyler, *, is_json: bool) -> int:
    try:
        stream = judge_stream(file.read_bytes())
    except OSError as error:
        raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None
    findings = [CheckFinding(row=flaw.row, message=flaw.message, received=flaw.received) for flaw in stream.flaws]
    is_conforming = not any(finding.level == "must" for finding in findings)
    if is_json:
        subject = {"file": str(file), "conformant": is_conforming, "events": len(stream.events)}
        out.write(_json_line({**subject, "findings": list(map(_finding_to_json, findings))}))
    else:
        for finding in findings:
            _write_finding(finding, out, paint)
        verdict = paint("bold", "conformant" if is_conforming else "not conformant")
        out.write(f"{len(stream.events)} events, {len(findings)} findings: {verdict}\n")
    return OK if is_conforming else FAILED


class _Table:
    """The report as text: a line for each case when it ends, its findings below it, and a summary."""

    def __init__(self, out: TextIO, paint: TextStyler, *, is_json: bool, status: StatusLine, case_count: int) -> None:
        self.status = status
        self._out = out
        self._paint = paint
        self._is_json = is_json
        self._case_count = case_count
        self._ended_cases = 0

    def show_progress(self) -> None:
        """Show how many cases have ended, as the status."""
        self.status.show(f"{self._ended_cases} of {self._case_count} cases")

    def write_outcome(self, outcome: CaseOutcome) -> None:
        self._ended_cases += 1
        if not self._is_json:
            self.status.clear()
            self._write_case(outcome)
        self.show_progress()

    def _write_case(self, outcome: CaseOutcome) -> None:
        case = outcome.case
        label, style = VERDICT_LABELS[outcome.verdict]
        reason = f"  ({outcome.skipped})" if outcome.verdict == "skip" else ""
        rows = self._paint("dim", " ".join(case.rows))
        self._out.write(
            f"{self._paint(style, label)}  {case.id:{CASE_ID_WIDTH}}  {one_line(case.title + reason)}  {rows}\n"
        )
        for finding in outcome.findings:
            _write_finding(finding, self._out, self._paint)
        self._out.flush()

    def finish(self, outcomes: list[CaseOutcome], subject: dict[str, str]) -> None:
        if self._is_json:
            self._out.write(_json_line(_report_to_json(outcomes, subject)))
            return
        counts = Counter(outcome.verdict for outcome in outcomes)
        summary = ", ".join(f"{counts[verdict]} {label}" for verdict, label in COUNT_LABELS.items() if counts[verdict])
        rows = _violated_rows(outcomes)
        verdict = "conformant in all cases that were run" if is_conformant(outcomes) else "not conformant"
        violations = f": {', '.join(rows)}" if rows else ""
        self._out.write(f"\n{summary}\n{self._paint('bold', verdict)}{violations}\n")


def _write_finding(finding: CheckFinding, out: TextIO, paint: TextStyler) -> None:
    style: TextStyle = "red" if finding.level == "must" else "yellow"
    out.write(f"      {paint(style, finding.row)}  {one_line(finding.message)}\n")
    for name, text in (("sent", finding.sent), ("came", finding.received)):
        if text:
            out.write(paint("dim", f"        {name}  {one_line(text)}") + "\n")


def _write_cases(cases: list[CheckCase], out: TextIO, *, is_json: bool) -> None:
    if is_json:
        out.write(_json_line([_case_to_json(case) for case in cases]))
        return
    width = max(len(" ".join(case.rows)) for case in cases)
    out.writelines(
        f"{case.id:{CASE_ID_WIDTH}}  {case.level:6}  {' '.join(case.rows):{width}}  {case.title}\n" for case in cases
    )


def _select_cases(ids: list[str] | None) -> list[CheckCase]:
    for id in ids or ():
        if id not in CASES_BY_ID:
            raise InvalidUsage(
                f"unknown case {id!r}{did_you_mean(id, CASES_BY_ID)}; `antiphon check --list` lists all cases"
            )
    return [CASES_BY_ID[id] for id in dict.fromkeys(ids)] if ids else list(CASES)


def key_from_environ(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    if not key:
        raise InvalidUsage(f"the environment variable {variable}, which --key-env names, is not set or empty")
    if not key.isascii() or not key.isprintable():
        raise InvalidUsage(
            f"the environment variable {variable} contains characters that a header cannot carry; expected "
            "printable ASCII"
        )
    return key


def parse_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"invalid time limit {text!r}: expected a number of seconds, at most 86400")
    return seconds


def _violated_rows(outcomes: list[CaseOutcome]) -> list[str]:
    """Return the violated rows, each once, `must` rows first."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    return list(dict.fromkeys(finding.row for finding in sorted(findings, key=lambda finding: finding.level)))


def _case_to_json(case: CheckCase) -> dict[str, Any]:
    return {"id": case.id, "rows": case.rows, "level": case.level, "title": case.title}


def _report_to_json(outcomes: list[CaseOutcome], subject: dict[str, str]) -> dict[str, Any]:
    cases = [
        {
            **_case_to_json(outcome.case),
            "verdict": outcome.verdict,
            "skipped": outcome.skipped or None,
            "seconds": round(outcome.seconds, 3),
            "findings": list(map(_finding_to_json, outcome.findings)),
        }
        for outcome in outcomes
    ]
    counts = Counter(outcome.verdict for outcome in outcomes)
    summary = {verdict: counts[verdict] for verdict in COUNT_LABELS}
    return {
        **subject,
        "conformant": is_conformant(outcomes),
        "summary": summary,
        "broken": _violated_rows(outcomes),
        "cases": cases,
    }


def _finding_to_json(finding: CheckFinding) -> dict[str, str]:
    return {
        "level": finding.level,
        "row": finding.row,
        "message": finding.message,
        "sent": finding.sent,
        "came": finding.received,
    }


def _json_line(value: Any) -> str:
    return f"{printable_json(msgspec.json.encode(value))}\n"


VERDICT_LABELS: Final[dict[Verdict, tuple[str, TextStyle]]] = {
    "pass": ("pass", "dim"),
    "fail": ("FAIL", "red"),
    "warn": ("warn", "yellow"),
    "skip": ("skip", "dim"),
}
COUNT_LABELS: Final[dict[Verdict, str]] = {"pass": "passed", "fail": "failed", "warn": "warned", "skip": "skipped"}
CASE_ID_WIDTH: Final = max(len(case.id) for case in CASES)
VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
EPILOG: Final = """examples:
  antiphon check http://127.0.0.1:8080
  antiphon check https://api.example.com/v1 --key-env EXAMPLE_KEY --model small
  antiphon check http://127.0.0.1:8080 --case stream.numbers --case error.shape
  antiphon check --file stream.sse
  antiphon check --list

A case passes, fails (the server violates a `must` requirement), warns (it violates a `should`
requirement), or is skipped because the server or its model does not allow the test.

environment:
  NO_COLOR  disables colours on a terminal

exit codes:
  0    conformant: no violation of a `must` requirement was found
  1    not conformant, or no server answers
  2    the command line is invalid; nothing was done
  130  interrupted with Ctrl-C"""
