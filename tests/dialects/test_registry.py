"""`dialects/registry`: every table by dialect is complete, and no other module compares names of dialects."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import get_args

import pytest
from tests.fuzz.corpus import OTHER_BODIES, PATHS
from tests.matrix.servers import KINDS
from tools.answer_features import BROKEN_STREAMS
from tools.dialects_page import REQUEST_BASES

import antiphon
from antiphon.api.routes import ALL_ROUTES
from antiphon.diagnosis.traits import TRAIT_FINDERS
from antiphon.dialects.dialect import ClientDialect, ClientDialectName, DialectName, ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, DIALECTS, SERVER_DIALECT_NAMES, SERVER_DIALECTS, Wire
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.profiles import load_profile
from antiphon.rules.table import RULES
from antiphon.testing.__main__ import SERVERS

SOURCE = Path(antiphon.__file__).parent
# Every other table that has a row for each server dialect.
TABLES: dict[str, Collection[str]] = {
    "antiphon.rules.table.RULES": RULES,
    "antiphon.probe.experiments.EXPERIMENTS": EXPERIMENTS,
    "antiphon.testing.__main__.SERVERS": SERVERS,
    "antiphon.diagnosis.traits.TRAIT_FINDERS": TRAIT_FINDERS,
    "tests.fuzz.corpus.PATHS": PATHS,
    "tests.fuzz.corpus.OTHER_BODIES": {"responses", *(dialect for dialect, _ in OTHER_BODIES)},
    "tests.matrix.servers.KINDS": [kind.dialect for kind in KINDS],
    "tools.answer_features.BROKEN_STREAMS": BROKEN_STREAMS,
    "tools.dialects_page.REQUEST_BASES": REQUEST_BASES,
}


def test_registry_has_the_names_of_the_literals() -> None:
    assert set(DIALECTS) == names_in(DialectName)
    assert set(SERVER_DIALECTS) == names_in(ServerDialectName) == set(SERVER_DIALECT_NAMES)
    assert set(CLIENT_DIALECTS) == names_in(ClientDialectName)
    assert {dialect.wire_type for dialect in SERVER_DIALECTS.values()} == set(get_args(Wire))


@pytest.mark.parametrize("table", TABLES)
def test_table_has_every_server_dialect(table: str) -> None:
    missing = set(SERVER_DIALECTS) - set(TABLES[table])
    assert not missing, f"{table} lacks the dialects {sorted(missing)}"
    assert set(TABLES[table]) == set(SERVER_DIALECTS), f"{table} has dialects that the registry lacks"


@pytest.mark.parametrize("dialect", CLIENT_DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_paths_of_a_client_dialect_are_routes(dialect: ClientDialect) -> None:
    actions = [f"/v1/models/{{model}}:{action}" for action in (*dialect.turn_actions, *dialect.other_actions)]
    assert dialect.turn_paths or dialect.turn_actions, f"{dialect.name} has no path of a turn"
    missing = {*dialect.turn_paths, *actions} - set(ALL_ROUTES)
    assert not missing, f"antiphon.api.dialect_operations lacks the operations {sorted(missing)} of {dialect.name}"


def test_model_is_in_the_path_or_in_the_body() -> None:
    assert [name for name, dialect in SERVER_DIALECTS.items() if dialect.has_model_in_path] == ["gemini"]


@pytest.mark.parametrize("name", SERVER_DIALECT_NAMES)
def test_default_profile_belongs_to_its_dialect(name: ServerDialectName) -> None:
    profile = load_profile(SERVER_DIALECTS[name].default_profile)
    assert (profile.dialect, type(profile.wire)) == (name, SERVER_DIALECTS[name].wire_type)


@pytest.mark.parametrize("name", sorted({*CLIENT_DIALECTS, *SERVER_DIALECTS}))
def test_every_dialect_folder_has_the_same_plan(name: str) -> None:
    """`wire` and `errors`; a module for requests and one for answers in each direction that the dialect has."""
    required = {"wire", "errors"}
    if name in CLIENT_DIALECTS:
        required |= {"request_in", "stream_out"}
    if name in SERVER_DIALECTS:
        required |= {"request_out", "stream_in"}
    modules = {path.stem for path in (SOURCE / "dialects" / name).glob("*.py")} - {"__init__"}
    assert required <= modules
    one_way = {"request_in", "request_out", "stream_in", "stream_out"} - required
    assert not modules & one_way, "the dialect has no such direction"


@pytest.mark.slow
def test_no_module_outside_dialects_compares_names_of_dialects() -> None:
    compared = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "dialects"
        for line in comparisons(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not compared, f"use a field of the dialect's record instead of its name: {compared}"


@pytest.mark.parametrize(
    "code",
    [
        'if target.dialect == "chat": ...',
        'x = "chat" != dialect',
        'profile.dialect in ("chat", "gemini")',
        'exchange.dialect.name == "gemini"',
        'match dialect:\n    case "chat" | "gemini": ...',
    ],
)
def test_comparison_with_the_name_of_a_dialect_is_recognised(code: str) -> None:
    assert list(comparisons(ast.parse(code))) in ([1], [2])


@pytest.mark.parametrize("code", ["profile.dialect != dialect", 'name == "chat"', 'dialect.framing == "sse"'])
def test_other_comparison_is_not_recognised(code: str) -> None:
    assert not list(comparisons(ast.parse(code)))


def comparisons(tree: ast.AST) -> Iterator[int]:
    """The lines on which a dialect is compared with the name of one."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=[right]) if (is_dialect(left) and has_name(right)) or (
                is_dialect(right) and has_name(left)
            ):
                yield node.lineno
            case ast.Match(subject=subject, cases=cases) if is_dialect(subject):
                yield from (case.pattern.lineno for case in cases if has_name(case.pattern))


def is_dialect(node: ast.expr) -> bool:
    """Whether an expression is `dialect`, `….dialect` or `….dialect.name`."""
    text = ast.unparse(node)
    return text.removesuffix(".name").rpartition(".")[2].endswith("dialect")


def has_name(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Constant) and each.value in DIALECTS for each in ast.walk(node))


def names_in(literal: object) -> set[str]:
    return {name for each in get_args(literal) for name in ([each] if isinstance(each, str) else get_args(each))}
