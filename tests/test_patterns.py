"""No regular expression of the package takes more than linear time, for any text.

The patterns are discovered, not listed: in the globals of every module, in classes, and in the objects there. None may
be inside a function, where it would not be discovered."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tests.pattern_inputs import Text, sized, texts_for

import antiphon
from antiphon.api.routes import ALL_ROUTES
from antiphon.ops.metrics import Metrics

pytestmark = [pytest.mark.slow, pytest.mark.without_coverage]


def _exhausted(pattern: re.Pattern[Any], text: Any) -> None:
    for _ in pattern.finditer(text):
        pass


METHODS: Final = {
    "match": "match",
    "fullmatch": "fullmatch",
    **dict.fromkeys(("search", "sub", "subn", "split", "findall", "finditer"), "scan"),
}
WAYS: Final[dict[str, Callable[[re.Pattern[Any], Any], object]]] = {
    "match": re.Pattern.match,
    "fullmatch": re.Pattern.fullmatch,
    "scan": _exhausted,  # as much as any other unanchored pattern
}
ANY_WAY: Final = frozenset({"fullmatch", "scan"})
FUNCTIONS: Final = frozenset(
    {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer", "template"}
)
DEEPEST: Final = 6
SHARES: Final = 24  # of the patterns; to discover them takes seconds, so it is not part of the collection of tests
SIZES: Final = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 1_024, 4_096, 16_384)
ENOUGH: Final = 0.001  # seconds

# Functions that build patterns from values known only at run time; `_made_at_run_time` has the patterns themselves.
IN_FUNCTIONS: Final = {
    "antiphon.ops.metrics.Metrics.register_paths": "made of the routes' own paths, once",
    "antiphon.diagnosis.traits._trait_kind": "called for globals of its module, and these are found",
    "antiphon.rules.messages.models._model": "called for globals of its module, and these are found",
}
WAY_OF: Final = {
    "antiphon.ops.metrics.Metrics.register_paths": frozenset({"fullmatch"}),
}
BY_HAND: Final[dict[str, tuple[Text, ...]]] = {
    "antiphon.dialects.common.upstream_errors.NAMED_KEY": (
        ("", "a-", ""),
        ("", "key-", ""),
        ("", "x_key ", ""),
        ("key", " ", "x"),
        ("key:", " ", ","),
        ("", "secret: [key] ", ""),
        ("Bearer", " ", ""),
    ),
    "antiphon.redaction.KEY": (
        ("", "eyJaaaaaa-", ""),
        ("", "eyJaaaaaa.a-", ""),
        ("", "sk-", ""),
        ("", "AKIA", ""),
    ),
    "antiphon.dialects.common.upstream_errors.ADDRESS": (
        ("[", ":", ""),
        ("[", "0:", ""),
        ("", "1.", ""),
        ("", "https://[", ""),
    ),
}


class UsedPattern(NamedTuple):
    """A pattern, and one way in which it is used."""

    name: str
    pattern: re.Pattern[Any]
    way: str


def modules() -> list[ModuleType]:
    return [importlib.import_module(each.name) for each in pkgutil.walk_packages(antiphon.__path__, "antiphon.")]


@cache
def trees() -> dict[str, ast.Module]:
    return {module.__name__: ast.parse(inspect.getsource(module)) for module in modules()}


@cache
def uses() -> dict[tuple[str, str], frozenset[str]]:
    """How each global of each module is used, there and where it is imported: `KEY.sub(…)`, `map(VISIBLE.fullmatch,
    …)`."""
    uses_by_name: dict[tuple[str, str], set[str]] = {}
    for module, tree in trees().items():
        origins = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
        }
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=method) if method in METHODS:
                    uses_by_name.setdefault(origins.get(name, (module, name)), set()).add(METHODS[method])
    return {name: frozenset(ways - ({"match"} if "scan" in ways else set())) for name, ways in uses_by_name.items()}


@cache
def patterns() -> list[UsedPattern]:
    """Every pattern of the package, once for each way in which it is used."""
    discovered: dict[tuple[Any, int, str], UsedPattern] = {}
    for name, pattern in [*_of_modules(), *_of_annotations(), *_made_at_run_time()]:
        module, _, last = name.rpartition(".")
        for way in sorted(uses().get((module, last)) or WAY_OF.get(name, ANY_WAY)):
            discovered.setdefault((pattern.pattern, pattern.flags, way), UsedPattern(name, pattern, way))
    return list(discovered.values())


Held = tuple[str, re.Pattern[Any]]  # the place, and the value


def _of_modules() -> Iterator[Held]:
    for module in modules():
        for name, value in vars(module).items():
            yield from _held(value, f"{module.__name__}.{name}", module.__name__, DEEPEST)


def _held(value: object, name: str, module: str, depth: int) -> Iterator[Held]:
    """The pattern itself, or those inside the value."""
    members: list[tuple[str, object]] = []
    match value:
        case re.Pattern():
            yield name, value
        case _ if depth == 0:
            return
        case type() if value.__module__ == module:
            members = [(f"{name}.{member}", inner) for member, inner in vars(value).items()]
        case Mapping():
            members = [(f"{name}[]", inner) for pair in value.items() for inner in pair]
        case list() | tuple() | set() | frozenset():
            members = [(f"{name}[]", inner) for inner in value]
        case msgspec.Struct():
            members = [(f"{name}[]", getattr(value, member, None)) for member in value.__struct_fields__]
    for member, inner in members:
        yield from _held(inner, member, module, depth - 1)


def _of_annotations() -> Iterator[Held]:
    """The patterns that msgspec compiles: `Meta(pattern=…)`, which it searches for."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="Meta") | ast.Attribute(attr="Meta"), keywords=keywords):
                    for keyword in keywords:
                        if keyword.arg == "pattern":
                            yield f"{module}.Meta", re.compile(ast.literal_eval(keyword.value))


def _made_at_run_time() -> Iterator[Held]:
    """The patterns that the functions of `IN_FUNCTIONS` build from values at run time."""
    metrics = Metrics()
    metrics.register_paths(ALL_ROUTES)
    for _, pattern in metrics._paths:
        yield "antiphon.ops.metrics.Metrics.register_paths", pattern


@pytest.mark.parametrize("share", range(SHARES))
def test_pattern_takes_time_in_proportion_to_its_text(share: int) -> None:
    """Four times the text costs at most eight times as much; a quadratic pattern costs sixteen times as much."""
    of_share = patterns()[share::SHARES]
    assert of_share
    slow_texts = {pattern: slow_text(pattern) for pattern in of_share}
    assert {pattern: text for pattern, text in slow_texts.items() if text is not None} == {}


def slow_text(pattern: UsedPattern) -> Text | None:
    """The first text that takes longer."""
    texts = [*texts_for(pattern.pattern), *BY_HAND.get(pattern.name, ())]
    return next((text for text in texts if not is_proportional(WAYS[pattern.way], pattern.pattern, text)), None)


def is_proportional(run: Callable[[re.Pattern[Any], Any], object], pattern: re.Pattern[Any], text: Text) -> bool:
    """Whether the time is linear, at the size where it is long enough to be measured. A pattern that is quick at the
    largest size is."""

    def cost(size: int) -> float:
        whole = sized(text, size, pattern)
        start = time.thread_time()
        run(pattern, whole)
        return time.thread_time() - start

    def is_within(size: int, larger: int) -> bool:
        """Best of five, three times: other work on the machine disturbs some measurements, but not all."""
        for _ in range(3):
            most = 8 * min(cost(size) for _ in range(5))
            if any(cost(larger) <= most for _ in range(5)):
                return True
        return False

    size = next((size for size in SIZES if cost(size) > ENOUGH), None)
    if size is None:
        return True
    if size >= SIZES[-2] and cost(size) <= 6 * min(cost(size // 4), cost(size // 4)):  # that is clear enough
        return True
    steps = (
        (5, 6, 8, 12, 16) if size < 256 else (16,)
    )  # small steps: an exponential pattern would never end at four times the size
    return all(is_within(size, size * quarters // 4) for quarters in steps)


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        (r"\b[a-z_-]*key:", "scan"),
        (r"\beyJ[A-Za-z-]{6,}\.[a-z-]+", "scan"),
        (r"\s*\}?\s*", "fullmatch"),
        (r"\[[0-9a-f:]*::[0-9a-f:]*\]", "match"),
        (r"(?:a+)+b", "match"),
        (r"(?:a|a)*b", "match"),
        (r'"(?:[^"\\]++|\\.)*+"', "scan"),
    ],
)
def test_slow_pattern_is_detected(pattern: str, way: str) -> None:
    """A test of the measurement itself."""
    assert slow_text(UsedPattern("example", re.compile(pattern), way)) is not None


@pytest.mark.parametrize(
    ("pattern", "way"), [(r"[a-z]++key", "match"), (r"\s*+\}?+\s*+", "fullmatch"), (r'"(?:[^"\\]++|\\.)*+"', "match")]
)
def test_linear_pattern_passes(pattern: str, way: str) -> None:
    assert slow_text(UsedPattern("example", re.compile(pattern), way)) is None


def test_patterns_of_every_kind_of_place_are_discovered() -> None:
    names = {pattern.name for pattern in patterns()}
    assert {
        "antiphon.redaction.KEY",  # a global
        "antiphon.dialects.common.refused_reasoning.REASONING[]",  # in a tuple
        "antiphon.diagnosis.refusal.RULE_EXPRESSIONS[][]",  # in a tuple of tuples
        "antiphon.diagnosis.traits.TRAIT_KINDS[][]",  # in a struct in a dictionary
    } <= names


def test_patterns_are_not_compiled_in_functions() -> None:
    """This test discovers only global patterns, which are compiled once."""
    hidden = {
        f"{module}.{name}"
        for module, tree in trees().items()
        for name, function in _functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "re"
        and node.attr in FUNCTIONS
    }
    assert hidden == set(IN_FUNCTIONS)


def test_re_is_imported_under_its_usual_name() -> None:
    """`import re`, otherwise the search for hidden patterns misses them."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module="re" | "regex"):
                    pytest.fail(f"{module} imports from re")
                case ast.Import(names=names):
                    assert not any(alias.name == "regex" or (alias.name == "re" and alias.asname) for alias in names), (
                        module
                    )


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The outermost functions and the methods, by name."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.ClassDef(name=name, body=body):
                for member in body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{name}.{member.name}", member
