"""Runs the Autobahn test suite in both directions: its client against our echo server, its server against our echo
client. Fails if a case fails; `make test-autobahn` calls it.

    python -m tests.autobahn FOLDER

FOLDER is where the suite is installed (`bin/wstest`). The reports are written there too.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from typing import Final

from tests.autobahn.echo_client import receive_messages
from tests.autobahn.echo_server import serve_echo

AGENT: Final = "antiphon"
#: 8 is empty, 9 measures speed, 12 and 13 are about compression, which we do not offer.
SECTIONS: Final = (1, 2, 3, 4, 5, 6, 7, 10)
#: FAILED, WRONG CODE, UNCLEAN and FAILED BY CLIENT are failures.
ACCEPTED: Final = ("OK", "NON-STRICT", "INFORMATIONAL")
START_ATTEMPTS: Final = 300  # tenths of a second


async def main(suite: Path) -> None:
    failures = 0
    for direction, test in (("server", test_server), ("client", test_client)):
        reports = suite / "reports" / direction
        await test(suite, reports)
        failures += print_results(direction, reports)
    sys.exit(1 if failures else 0)


async def test_server(suite: Path, reports: Path) -> None:
    """The suite connects to our echo server."""
    async with serve_echo() as port:
        servers = [{"agent": AGENT, "url": f"ws://127.0.0.1:{port}"}]
        process = await start_suite(suite, "fuzzingclient", reports, {"servers": servers})
        if await process.wait():
            sys.exit(f"the suite ended with status {process.returncode}")


async def test_client(suite: Path, reports: Path) -> None:
    """Our echo client connects to the suite, once for each case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = await start_suite(suite, "fuzzingserver", reports, {"url": f"ws://127.0.0.1:{port}"})
    try:
        await wait_until_listening(port)
        [count] = await receive_messages(f"{url}/getCaseCount", is_echo=False)
        for case in range(1, int(count) + 1):
            await receive_messages(f"{url}/runCase?case={case}&agent={AGENT}", is_echo=True)
        await receive_messages(f"{url}/updateReports?agent={AGENT}", is_echo=False)
    finally:
        process.terminate()
        await process.wait()


async def start_suite(suite: Path, mode: str, reports: Path, settings: dict[str, object]) -> Process:
    reports.mkdir(parents=True, exist_ok=True)
    (reports / "index.json").unlink(missing_ok=True)
    spec = reports / "spec.json"
    cases = {"cases": [f"{section}.*" for section in SECTIONS], "exclude-cases": [], "exclude-agent-cases": {}}
    spec.write_text(json.dumps({"outdir": str(reports), **cases, **settings}), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (reports / "wstest.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(suite / "bin" / "wstest", "--mode", mode, "--spec", spec, "--webport", "0"),
            env={**environment, "PYTHONUSERBASE": str(suite)},
            cwd=reports,
            stdout=log,
            stderr=log,
        )


async def wait_until_listening(port: int) -> None:
    for _ in range(START_ATTEMPTS):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    sys.exit("the suite's server did not start")


def print_results(direction: str, reports: Path) -> int:
    """Prints the results, and returns the number of failures."""
    cases = json.loads((reports / "index.json").read_text(encoding="utf-8"))[AGENT]
    missing = set(SECTIONS) - {int(case.split(".")[0]) for case in cases}
    if missing:
        sys.exit(f"our {direction}: no case of the sections {sorted(missing)} was run")
    counts = Counter(result["behavior"] for result in cases.values())
    print(f"our {direction}: {len(cases)} cases:", ", ".join(f"{count} {name}" for name, count in counts.items()))
    failures = 0
    for case in sorted(cases, key=lambda case: [int(part) for part in case.split(".")]):
        outcomes = {cases[case]["behavior"], cases[case]["behaviorClose"]}
        failures += not outcomes <= set(ACCEPTED)
        if outcomes != {"OK"}:
            print(f"  {case}: {cases[case]['behavior']}, close: {cases[case]['behaviorClose']}")
    return failures


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
