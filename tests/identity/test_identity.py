"""The identity law: if client and server speak one dialect, a request, an answer and a stream arrive equal as JSON.

The cases are made from the types of the official SDKs, and have members that nobody knows. `allowed` has the closed
table of differences. `ANTIPHON_EXAMPLES` multiplies the number of cases, and `ANTIPHON_RANDOM=1` makes other cases.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from msgspec.structs import replace
from tests.identity.allowed import ALLOWED, find_allowed
from tests.identity.law import play_cases
from tests.identity.responses import make_summary_case
from tests.identity.sources import SOURCES

from antiphon.dialects.dialect import ServerDialectName

COUNT = int(os.environ.get("ANTIPHON_EXAMPLES", "30")) * 10
SEED = random.randrange(10**6) if os.environ.get("ANTIPHON_RANDOM") else 0
#: How many cases contain every allowed difference.
ENOUGH = 300
every_dialect = pytest.mark.parametrize("dialect", SOURCES)


@pytest.mark.without_coverage
@every_dialect
def test_everything_arrives_as_it_was_sent(dialect: ServerDialectName) -> None:
    """No difference that is not in the table, and nothing in the table that does not occur."""
    differences = asyncio.run(play_cases(SOURCES[dialect], count=COUNT, seed=SEED))
    found = [each for each in differences if find_allowed(dialect, each.direction, each.delta) is None]
    lines = {f"{each.direction} {each.delta.path} {each.delta.change}": each for each in reversed(found)}
    report = [f"{line}: {each.delta.detail} (case {each.case}, seed {SEED})" for line, each in lines.items()]
    assert sorted(report) == []
    if COUNT >= ENOUGH:
        used = {find_allowed(dialect, each.direction, each.delta) for each in differences}
        assert [row for row in ALLOWED if row.dialect == dialect and row not in used] == []


def test_open_reasoning_arrives_as_the_summary_that_the_client_asked_for() -> None:
    """RSN-4: `summaries` has the exception of the law. Everything else arrives as it was sent."""
    source = replace(SOURCES["responses"], make_case=make_summary_case)
    differences = asyncio.run(play_cases(source, count=40, seed=SEED))
    found = [each for each in differences if find_allowed("responses", each.direction, each.delta) is None]
    assert found == []
    cases = [make_summary_case(source.generator(SEED), is_stream) for is_stream in (False, True)]
    assert all(source.expect(case).answer != case.answer for case in cases)
