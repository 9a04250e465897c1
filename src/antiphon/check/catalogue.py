"""All cases, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from antiphon.check.case import Case
from antiphon.check.cases import errors, items, settings, streaming, tools, transport

CASES: Final[tuple[Case, ...]] = (
    *transport.CASES,
    *streaming.CASES,
    *items.CASES,
    *tools.CASES,
    *settings.CASES,
    *errors.CASES,
)
CASE_OF_ID: Final[dict[str, Case]] = {case.id: case for case in CASES}
