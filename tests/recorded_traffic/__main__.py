"""Plays the recordings in a folder through the gateway and prints a report; `make test-recordings` calls it.

    python -m tests.recorded_traffic FOLDER [--show CLASS]

Ends with 1 if something failed, and with 2 if FOLDER is missing. `--show` lists the differences of one class.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.recorded_traffic.classes import CLASSES
from tests.recorded_traffic.files import find_files, read_files
from tests.recorded_traffic.recording import Recording, Skipped
from tests.recorded_traffic.report import MIN_PLAYED, Run, findings_of, make_report
from tests.recorded_traffic.run import play_all


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recorded_traffic", description=__doc__)
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--show", metavar="CLASS", help="list the differences of one class")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    if not options.folder or not folder.is_dir():
        print(MISSING.format(value=options.folder), file=sys.stderr)
        return 2
    files = find_files(folder)
    results = list(read_files(folder, files))
    recordings = [result for result in results if isinstance(result, Recording)]
    run = Run(
        file_count=len(files),
        recordings=recordings,
        skipped=[result for result in results if isinstance(result, Skipped)],
        findings=play_all(recordings),
        classes=CLASSES,
    )
    if options.show:
        for finding in findings_of(run, options.show):
            print(f"{finding.difference} ({finding.detail}) in {finding.source}")
        return 0
    report = make_report(run)
    print(report.text)
    return 1 if report.failures else 0


MISSING = f"""\
CORPUS={{value}} is no folder. The recordings of public projects are not part of this repository. Name a folder with
clones of crmne/ruby_llm, Arize-ai/openinference and vercel/ai: make test-recordings CORPUS=FOLDER. At least
{MIN_PLAYED:,} recordings must be played; docs/testing.md says more."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
