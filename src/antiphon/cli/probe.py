"""`antiphon probe`: probe a server, print each finding, and write the profile derived from them."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from antiphon.cli.check import key_from_environ, parse_seconds, server_url
from antiphon.cli.exits import FAILED, INTERRUPTED, OK, CommandFailed, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import StatusLine, TextStyle, TextStyler, one_line, printable_json
from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.probe.detect import NoServerFound, detect_dialect, first_model
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.finding import ProbeFinding, Verdict
from antiphon.probe.run import Probe, ProbeReport, ServerUnanswered, estimate_cost
from antiphon.probe.target import ProbeTarget
from antiphon.profiles import load_profile
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "probe",
        help=summary,
        description="Sends a server one request for each feature that clients use. It reports what the server accepts, "
        "refuses or ignores, with the request that shows it, and writes a profile with which the gateway "
        "can use the server.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("url", metavar="URL", help="the URL of the server, with or without /v1")
    parser.add_argument(
        "--dialect",
        metavar="D",
        choices=DIALECTS,
        help="the dialect of the server (default: the first that it answers)",
    )
    parser.add_argument("--model", metavar="M", help="the model to use (default: the first that the server lists)")
    parser.add_argument("--key-env", metavar="VAR", help="the environment variable that holds the key for the server")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=parse_seconds,
        default=60.0,
        help="the time limit for one answer, in seconds (default: 60)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the profile to this file")
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, with every request and answer"
    )


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    if args.output is not None and not args.output.parent.is_dir():
        raise InvalidUsage(f"cannot write {args.output}: there is no folder {args.output.parent}")
    timeouts = Timeouts(
        connect=min(args.timeout, 10.0), first_byte=args.timeout, idle=args.timeout, total=args.timeout * 2
    )
    key = key_from_environ(args.key_env, environ)
    with StatusLine(err, environ) as status:
        table = _Table(out, TextStyler(out, environ), is_json=args.json, status=status)
        session = _Session(args, table, err, key, timeouts)
        try:
            return asyncio.run(session.run(transport or HttpTransport(environ)))
        except KeyboardInterrupt:
            session.write_partial_report("interrupted")
            return INTERRUPTED


def base_url(text: str, dialect: ServerDialectName) -> str:
    """Return the address of a server up to its version. Gemini has several versions, other APIs one."""
    url = server_url(text)
    base_path = SERVER_DIALECTS[dialect].base_path
    if base_path == COMMON_BASE_PATH:
        return url
    version = VERSION_PATH.search(url)
    return url[: version.end()] if version else f"{url.removesuffix(COMMON_BASE_PATH)}{base_path}"


class _Session:
    """One run of the command; its findings are printed even if it ends early."""

    def __init__(
        self, args: argparse.Namespace, table: _Table, err: TextIO, key: str | None, timeouts: Timeouts
    ) -> None:
        self._args = args
        self._table = table
        self._err = err
        self._key = key
        self._timeouts = timeouts
        self._probe: Probe | None = None

    async def run(self, transport: Transport) -> int:
        try:
            self._table.status.show(f"looking for a server at {server_url(self._args.url)}")
            target = await self._select_target(transport)
            self._table.status.clear()
            self._print_cost(target)
            self._table.status.show("sending a minimal request")
            self._probe = Probe(target, transport, self._table.write_finding)
            report = await self._probe.run()
        except NoServerFound as fault:
            raise CommandFailed(f"{fault}") from None
        except ServerUnanswered as fault:
            self.write_partial_report(str(fault))
            raise CommandFailed(f"{target.base_url} does not answer a minimal request: {fault}") from None
        finally:
            await transport.close()
        self._write_report(report)
        return FAILED if report.stopped else OK

    def write_partial_report(self, reason: str) -> None:
        """Print the findings of a run that ended early."""
        if self._probe is not None:
            self._probe.stopped = reason
            self._write_report(self._probe.report())

    async def _select_target(self, transport: Transport) -> ProbeTarget:
        dialects: list[ServerDialectName] = [self._args.dialect] if self._args.dialect else list(DIALECTS)
        targets = [self._target_for(dialect) for dialect in dialects]
        target = targets[0]
        if not target.model:
            first_listed = await first_model(targets, transport)
            targets = [msgspec.structs.replace(target, model=first_listed) for target in targets]
        return targets[0] if len(targets) == 1 else await detect_dialect(targets, transport)

    def _target_for(self, dialect: ServerDialectName) -> ProbeTarget:
        base = load_profile(SERVER_DIALECTS[dialect].default_profile)
        return ProbeTarget(
            base_url=base_url(self._args.url, dialect),
            base_profile=base,
            model=self._args.model or "",
            key=self._key,
            key_header=base.key_header,
            timeouts=self._timeouts,
        )

    def _print_cost(self, target: ProbeTarget) -> None:
        cost = estimate_cost(target.dialect)
        self._err.write(
            f"{target.base_url}, dialect {target.dialect}, model {one_line(target.model)}\n{cost.min_requests} to "
            f"{cost.max_requests} requests, about {cost.tokens_in} input tokens and {cost.tokens_out} output "
            "tokens; Ctrl-C stops the probe and prints its findings so far\n"
        )

    def _write_report(self, report: ProbeReport) -> None:
        output: Path | None = self._args.output
        if output is not None:
            try:
                output.write_text(report.profile, encoding="utf-8")
            except OSError as error:
                raise CommandFailed(f"cannot write {output}: {error.strerror}") from None
        self._table.finish(report, output)


class _Table:
    """The report as text: a line for each finding, then a summary and the profile."""

    def __init__(self, out: TextIO, paint: TextStyler, *, is_json: bool, status: StatusLine) -> None:
        self.status = status
        self._out = out
        self._paint = paint
        self._is_json = is_json
        self._finding_count = 0

    def write_finding(self, finding: ProbeFinding) -> None:
        self._finding_count += 1
        if not self._is_json:
            self.status.clear()
            self._write_line(finding)
        self.status.show(f"{self._finding_count} findings so far")

    def _write_line(self, finding: ProbeFinding) -> None:
        verdict = self._paint(VERDICT_STYLES[finding.verdict], f"{finding.verdict:8}")
        detail = self._paint("dim", one_line(finding.detail))
        self._out.write(f"{verdict}  {finding.title:{TITLE_WIDTH}}  {detail}\n")
        self._out.flush()

    def finish(self, report: ProbeReport, output: Path | None) -> None:
        self.status.clear()
        if self._is_json:
            self._out.write(f"{printable_json(msgspec.json.encode(report))}\n")
            return
        counts = Counter(finding.verdict for finding in report.findings)
        summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICT_STYLES if counts[verdict])
        self._out.write(f"\n{summary}; {report.requests} requests\n")
        if report.stopped:
            self._out.write(f"{self._paint('bold', 'stopped early')}: {one_line(report.stopped)}\n")
        refused_proofs = [
            finding for finding in report.findings if finding.id.startswith("proof.") and finding.verdict != "accepted"
        ]
        if refused_proofs:
            count = len(refused_proofs)
            warning = f"with this profile the server still refuses {count} of the turns that the gateway would send"
            self._out.write(f"{self._paint('bold', warning)}\n")
        if output is None:
            self._out.write(f"\n{report.profile}")
        else:
            self._out.write(f"profile written to {output}; use it with: profile = {str(output)!r}\n")


#: In the order in which they are tried if none is given.
DIALECTS: Final = tuple(EXPERIMENTS)
VERDICT_STYLES: Final[dict[Verdict, TextStyle]] = {
    "accepted": "dim",
    "ignored": "yellow",
    "refused": "red",
    "down": "red",
    "untried": "dim",
}
TITLE_WIDTH: Final = 48
COMMON_BASE_PATH: Final = "/v1"
VERSION_PATH: Final = re.compile(r"/v1(alpha|beta)\d*")
EPILOG: Final = """examples:
  antiphon probe http://127.0.0.1:8080
  antiphon probe https://api.example.com/v1 --key-env EXAMPLE_KEY --model small -o example.toml
  antiphon probe http://127.0.0.1:8080 --dialect chat --json

exit codes:
  0    the probe ran to its end and the profile is complete, whatever the server refuses
  1    the server does not answer, or stopped answering; the findings so far are printed
  2    the command line is invalid; nothing was sent
  130  interrupted with Ctrl-C; the findings so far are printed"""
