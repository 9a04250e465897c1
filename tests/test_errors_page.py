"""docs/errors.md has a line for every error code in the source, and every fault invariant and case that tests cite.

`tests/api/test_openapi.py` checks that its statuses, types and codes are those of the OpenAPI document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.error_table import PAGE, error_rows
from tests.sources import REPO, source_files

from antiphon.client.server import KEY_ERROR_CODES
from antiphon.dialects.chat.stream_in import FAILURE_CODES as FAILED_CHAT
from antiphon.dialects.common.upstream_errors import GATEWAY_CODES
from antiphon.gateway.background_job import CANCELLED

pytestmark = pytest.mark.without_coverage
TEXT = PAGE.read_text(encoding="utf-8")
# Tables of codes in the source, for errors that are not raised with a literal.
TABLES = {*KEY_ERROR_CODES.values(), *FAILED_CHAT.values(), *GATEWAY_CODES, CANCELLED}


def test_errors_page_has_one_complete_line_per_error() -> None:
    rows = error_rows()
    assert len(rows) >= 39
    assert len({(row.status, row.type, row.code) for row in rows}) == len(rows)
    assert all(row.cause.strip() and row.remedy.strip() for row in rows)


@pytest.mark.slow
def test_errors_page_lists_every_code_of_the_source() -> None:
    raised = {code for path in _sources() for code in _codes(ast.parse(path.read_text(encoding="utf-8")))}
    assert len(raised) > 20
    assert raised | TABLES <= {row.code for row in error_rows()}


@pytest.mark.slow
def test_codes_without_a_status_are_in_the_source() -> None:
    """Those with a status are checked against the OpenAPI document."""
    raised = {code for path in _sources() for code in _codes(ast.parse(path.read_text(encoding="utf-8")))}
    assert {row.code for row in error_rows() if row.status is None} <= raised | TABLES


def test_errors_page_lists_every_cited_invariant() -> None:
    numbers = set(re.findall(r"^(\d)\. ", TEXT.partition("## Fault invariants")[2], flags=re.MULTILINE))
    assert numbers == set("123456")
    cited = {
        number
        for path in source_files("src", "tests", "soak", "docs")
        for numbers in re.findall(r"[Ii]nvariants? (\d(?:(?:, | and | to )\d)*)", path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d", numbers)
    }
    assert cited == numbers


def test_errors_page_lists_every_cited_case() -> None:
    """Tests cite a section or the start of a case in quotation marks after the name of the page."""
    texts = [path.read_text(encoding="utf-8") for path in source_files("src", "tests", "soak")]
    cited = {name for text in texts for name in re.findall(r'docs/errors\.md, "([^"]+)"', text)}
    assert len(cited) > 5
    for name in cited:
        assert f"\n### {name}\n" in TEXT or f"\n| {name}" in TEXT, name


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ('raise ClientFault("m", code="a_b", status=413)', {"a_b"}),
        ('ApiError("m", code="a" if x else "b")', {"a", "b"}),
        ('class Fault(ApiError):\n    default_code = "a"', {"a"}),
        ('code, other = "a", "b"', set()),
        ('ApiError("m", code=TABLE[code])', set()),
    ],
)
def test_codes_are_read_from_error_constructors(source: str, codes: set[str]) -> None:
    assert set(_codes(ast.parse(source))) == codes


def _sources() -> list[Path]:
    """The rules of servers, and the test servers, have the codes of the servers that they imitate."""
    return [
        path
        for path in source_files("src")
        if path.suffix == ".py" and not {"rules", "testing"} & set(path.relative_to(REPO).parts)
    ]


def _codes(tree: ast.AST) -> Iterator[str]:
    """The literals in the constructor calls of errors, and the defaults of classes."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=value) | ast.Assign(targets=[ast.Name(id="default_code")], value=value):
                yield from _literals(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == "LIFETIME_CODE":
                yield from _literals(value)


def _literals(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str() as literal) if literal:
            yield literal
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_literals(body), *_literals(orelse))
        case ast.BoolOp(values=values):
            for option in values:
                yield from _literals(option)
