"""Runs of the probe for tests: without pauses, and with the findings by id."""

from __future__ import annotations

import asyncio
from typing import Any

from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.probe.finding import ProbeFinding
from antiphon.probe.run import Probe, ProbeReport
from antiphon.probe.target import ProbeTarget
from antiphon.profiles import load_profile
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

QUICK = Timeouts(connect=5.0, first_byte=10.0, idle=10.0, total=20.0)


def make_target(url: str, dialect: ServerDialectName, **settings: Any) -> ProbeTarget:
    base = load_profile(SERVER_DIALECTS[dialect].default_profile)
    settings = {"model": "mock-1", "timeouts": QUICK, "key_header": base.key_header, **settings}
    return ProbeTarget(base_url=url, base_profile=base, **settings)


def run_probe(target: ProbeTarget, transport: Transport | None = None) -> tuple[ProbeReport, dict[str, ProbeFinding]]:
    """Runs all experiments."""

    async def run() -> ProbeReport:
        network = transport or HttpTransport({})
        try:
            return await Probe(target, network, lambda _: None, sleep=_no_sleep).run()
        finally:
            await network.close()

    report = asyncio.run(run())
    return report, {finding.id: finding for finding in report.findings}


async def _no_sleep(_: float) -> None:
    """Returns at once."""
