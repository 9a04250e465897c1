"""The outcome of the last run of the catalog, as JSON in `.clients/results.json`."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from tests.clients.heavy.catalog import Client
from tests.clients.heavy.npm_programs import CLIENTS
from tests.clients.heavy.programs import version

RESULTS: Final = CLIENTS.parent / "results.json"


class Outcome(Struct, forbid_unknown_fields=True):
    """The outcome of one client: versions by package, and for each feature the upstreams with which it works or
    fails."""

    versions: dict[str, str]
    works: dict[str, list[str]]
    fails: dict[str, list[str]]


def read_results(path: Path = RESULTS) -> dict[str, Outcome]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome]) if path.exists() else {}


def record(client: Client, upstream: str, found: dict[str, list[str]]) -> None:
    """Records the outcome of one client with one upstream. Several workers may record at the same time."""
    versions = {package: version(client.environment, package) for package in client.packages}
    with _locked():
        results = read_results()
        outcome = results.setdefault(client.name, Outcome(versions, {}, {}))
        outcome.versions = versions
        for feature, problems in found.items():
            for table, is_member in ((outcome.works, not problems), (outcome.fails, bool(problems))):
                upstreams = {*table.get(feature, ())} - {upstream} | ({upstream} if is_member else set())
                if upstreams:
                    table[feature] = sorted(upstreams)
                else:
                    table.pop(feature, None)
        write_results(results)


@contextmanager
def _locked() -> Iterator[None]:
    with RESULTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_results(results: dict[str, Outcome], path: Path = RESULTS) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
