"""Writes the table of `docs/clients.md` from the outcome of a run of the catalog.

`python -m tests.clients.heavy.page` takes the outcome of the last run, `.clients/results.json`, copies it to
`tests/clients/results.json`, and writes the table. A test in `make test` checks that the table belongs to the copy.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.clients.blocks import DOCS
from tests.clients.heavy.catalog import CLIENTS, Client
from tests.clients.heavy.features import FEATURES
from tests.clients.heavy.results import RESULTS, Outcome, read_results, write_results

PAGE: Final = DOCS / "clients.md"
COPY: Final = Path(__file__).parents[1] / "results.json"
BEGIN: Final = "<!-- clients: made by tests/clients/heavy/page.py -->\n"
END: Final = "<!-- end of clients -->\n"


def section(results: dict[str, Outcome]) -> str:
    """The table, and the reasons for what is not offered."""
    titles = [feature.replace("_", " ") for feature in FEATURES]
    lines = [
        f"| client | version | API | upstreams | {' | '.join(titles)} |",
        "|---|---|---|---|" + "---|" * len(titles),
    ]
    reasons: list[str] = []
    for client in CLIENTS:
        if client.name in results:
            lines.append(_row(client, results[client.name], reasons))
    notes = [f"{number}. {reason[:1].upper()}{reason[1:]}." for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", *notes, ""])


def page_with(results: dict[str, Outcome], page: str) -> str:
    """The page with the section in its place."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the page has no mark for the table"
    assert end, "the page has no mark for the end of the table"
    return before + BEGIN + section(results) + END + after


def _row(client: Client, outcome: Outcome, reasons: list[str]) -> str:
    versions = ", ".join(outcome.versions.values())
    cells = [_cell(client, outcome, feature, reasons) for feature in FEATURES]
    note = _reference(client.note, reasons) if client.note else ""
    upstreams = ", ".join(client.upstreams)
    return f"| {client.name}{note} | {versions} | {client.dialect} | {upstreams} | {' | '.join(cells)} |"


def _cell(client: Client, outcome: Outcome, feature: str, reasons: list[str]) -> str:
    if feature in client.not_offered:
        return f"not offered{_reference(client.not_offered[feature], reasons)}"
    if fails := outcome.fails.get(feature):
        return f"**fails**: {', '.join(fails)}"
    upstreams = outcome.works.get(feature, [])
    suffix = "" if upstreams == sorted(client.upstreams) else f": {', '.join(upstreams)}"
    if feature == "failed_tool":
        return f"✓ {'marked' if client.marks_failures else 'as text'}{suffix}"
    if feature != "reasoning":
        return f"✓{suffix}"
    shown, returned = (_listed(upstreams, names) for names in (client.shows_reasoning, client.returns_reasoning))
    return f"✓{suffix}" if shown == returned == "all" else f"shown: {shown}; returned: {returned}"


def _listed(upstreams: Collection[str], chosen: Collection[str]) -> str:
    names = [name for name in upstreams if name in chosen]
    return ("all" if len(names) == len(upstreams) else ", ".join(names)) or "none"


def _reference(reason: str, reasons: list[str]) -> str:
    """The number of a reason, which is added if it is new."""
    if reason not in reasons:
        reasons.append(reason)
    return f" ({reasons.index(reason) + 1})"


def main() -> None:
    results = read_results(RESULTS)
    names = [client.name for client in CLIENTS]
    ordered = {name: results[name] for name in names if name in results}
    write_results(ordered, COPY)
    PAGE.write_text(page_with(ordered, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
