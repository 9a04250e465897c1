"""`antiphon explain`: explain why a server refuses a request body. The body is read from a file or a trace; nothing is
sent."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import msgspec
from msgspec import Struct, structs

from antiphon.cli.exits import FAILED, OK, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import TextStyler, one_line, printable_json
from antiphon.cli.trace import trace_folder
from antiphon.diagnosis import Finding, diagnose, guess_dialect, lint_body, lint_for_profile
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECT_NAMES
from antiphon.errors import ProfileError
from antiphon.profiles import Profile, load_profile
from antiphon.protocol.codec import decode_json
from antiphon.trace.reader import RecordedTrace, TraceError, read_trace
from antiphon.trace.records import Route, UpstreamHead, UpstreamPiece, UpstreamRequest


class Case(Struct, frozen=True, kw_only=True):
    """A request body to explain, and the server's error if there is one."""

    body: bytes
    dialect: ServerDialectName | None = None
    profile: str | None = None
    status: int = 0
    error_text: str = ""


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "explain",
        help=summary,
        description="Examines the body of a request for anything that servers refuse. It prints where the problem is, "
        "what is allowed there, and which profile setting makes the gateway correct it. It sends nothing.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", type=Path, help="the file with the body (default and `-`: standard input)"
    )
    parser.add_argument(
        "--dialect",
        metavar="D",
        choices=SERVER_DIALECT_NAMES,
        help=f"one of {', '.join(SERVER_DIALECT_NAMES)} (default: detected from the body)",
    )
    parser.add_argument(
        "--against", metavar="PROFILE", help="also check against the profile of the target server: its name or its file"
    )
    parser.add_argument("--said", dest="error_text", metavar="TEXT", help="the server's error message")
    parser.add_argument(
        "--trace",
        metavar="ID",
        help="explain the upstream request in a trace instead of a file: the id of a request, or `last`",
    )
    parser.add_argument(
        "--dir", metavar="DIR", type=Path, help="the folder of traces (default: the configured folder, else `traces`)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    stdin: BinaryIO | None = None,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> int:
    del err  # errors are raised
    if args.trace and args.file:
        raise InvalidUsage("expected either --trace or a file, got both")
    case = (
        _case_from_trace(args, environ, cwd or Path.cwd())
        if args.trace
        else Case(body=_read_input(args.file, stdin or sys.stdin.buffer))
    )
    if args.error_text is not None:
        case = structs.replace(case, error_text=args.error_text, status=400)
    body = _decode_object(case.body)
    dialect: ServerDialectName = args.dialect or case.dialect or guess_dialect(body)
    profile = _load_profile(args.against, case.profile)
    findings = _find_problems(case, dialect, profile, checks_profile=args.against is not None)
    if args.json:
        report = {"dialect": dialect, "profile": profile.name if profile else None, "findings": findings}
        out.write(f"{printable_json(msgspec.json.encode(report))}\n")
    else:
        _write_findings(findings, dialect, out, TextStyler(out, environ))
    return FAILED if any(finding.certain for finding in findings) else OK


def _find_problems(
    case: Case, dialect: ServerDialectName, profile: Profile | None, *, checks_profile: bool
) -> list[Finding]:
    own_profile = profile if profile is not None and profile.dialect == dialect else None
    findings = diagnose(dialect, case.body, case.status, case.error_text, own_profile) if case.status else []
    findings += [finding for finding in lint_body(case.body, dialect, own_profile) if finding not in findings]
    if checks_profile and profile is not None:
        findings += [finding for finding in lint_for_profile(case.body, dialect, profile) if finding not in findings]
    return findings


def _write_findings(findings: list[Finding], dialect: ServerDialectName, out: TextIO, paint: TextStyler) -> None:
    out.write(f"{paint('dim', f'read as a {dialect} request')}\n")
    for finding in findings:
        label = paint("red", "wrong") if finding.certain else paint("yellow", "perhaps")
        out.write(f"{label}  {paint('bold', one_line(finding.path or 'the body'))}: {one_line(finding.problem)}\n")
        if finding.settings:
            out.write(f"    profile setting: {one_line(' or '.join(finding.settings))}\n")
    if not findings:
        out.write("no known problems\n")


def _case_from_trace(args: argparse.Namespace, environ: Mapping[str, str], cwd: Path) -> Case:
    try:
        trace = read_trace(trace_folder(args.dir, environ, cwd), args.trace)
    except TraceError as error:
        raise InvalidUsage(str(error)) from None
    return _last_upstream_request(trace)


def _last_upstream_request(trace: RecordedTrace) -> Case:
    """Return the last request to the upstream, and its answer."""
    request_index = max(
        (index for index, record in enumerate(trace.records) if isinstance(record, UpstreamRequest)), default=None
    )
    if request_index is None:
        raise InvalidUsage(f"the trace {trace.id} contains no request to an upstream")
    request, *answer = trace.records[request_index:]
    assert isinstance(request, UpstreamRequest)
    route = next(record for record in trace.records if isinstance(record, Route))
    status = next((record.status for record in answer if isinstance(record, UpstreamHead)), 0)
    error_body = (
        b"".join(record.data.raw for record in answer if isinstance(record, UpstreamPiece)) if status != 200 else b""
    )
    return Case(
        body=request.body.raw,
        dialect=next((name for name in SERVER_DIALECT_NAMES if name == route.dialect), None),
        profile=route.profile,
        status=status,
        error_text=error_body.decode("utf-8", "replace"),
    )


def _load_profile(requested_profile: str | None, recorded_profile: str | None) -> Profile | None:
    """Load the requested profile, or the recorded one. A recorded profile may no longer exist."""
    if requested_profile is not None:
        return load_profile(requested_profile)
    try:
        return None if recorded_profile is None else load_profile(recorded_profile)
    except ProfileError:
        return None


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError as error:
        raise InvalidUsage(f"the body is not a JSON object: {error}") from None


def _read_input(file: Path | None, stdin: BinaryIO) -> bytes:
    if file is None or str(file) == "-":
        if stdin.isatty():
            raise InvalidUsage("nothing to explain; name a file, or pipe a body into the command")
        return stdin.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None


EPILOG: Final = """examples:
  antiphon explain body.json
  antiphon explain body.json --against my-server.toml
  antiphon explain body.json --said "messages.1.role: Input should be 'user' or 'assistant'"
  antiphon explain --trace last

exit codes:
  0    no certain problem found; what only some servers refuse is listed too
  1    at least one certain problem found
  2    the command line, the profile, the trace or the file is invalid; nothing was examined"""
