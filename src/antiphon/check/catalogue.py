"""All cases, in the order of the report."""

from __future__ import annotations

from typing import Final

from antiphon.check.case import CheckCase
from antiphon.check.cases import errors, items, settings, streaming, tools, transport

CASES: Final[tuple[CheckCase, ...]] = (
    *transport.CASES,
    *streaming.CASES,
    *items.CASES,
    *tools.CASES,
    *settings.CASES,
    *errors.CASES,
)
CASES_BY_ID: Final[dict[str, CheckCase]] = {case.id: case for case in CASES}
