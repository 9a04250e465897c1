"""Finds the public classes, functions and methods, and the examples in their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import antiphon
from antiphon import producer, testing, translate, types

MODULES: Final = {
    "antiphon": antiphon,
    "antiphon.producer": producer,
    "antiphon.testing": testing,
    "antiphon.translate": translate,
    "antiphon.types": types,
}
EXAMPLE: Final = re.compile(r"^([ ]*)Example:\n((?:\1[ ]{4}.*\n|[ ]*\n)+)", re.MULTILINE)


class PublicThing(NamedTuple):
    """A public class, function, method or property of `antiphon` or `antiphon.translate`."""

    name: str
    value: Any

    @property
    def docstring(self) -> str:
        return inspect.getdoc(self.value) or ""

    @property
    def needs_example(self) -> bool:
        """Properties are shown in the example of their class. All exceptions are used as `ApiError` is."""
        if isinstance(self.value, property):
            return False
        is_exception = inspect.isclass(self.value) and issubclass(self.value, antiphon.AntiphonError)
        return not is_exception or self.value is antiphon.ApiError


def public_things() -> Iterator[PublicThing]:
    for module_name in ("antiphon", "antiphon.translate"):
        module = MODULES[module_name]
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.isclass(value) and not inspect.isfunction(value):
                continue
            yield PublicThing(f"{module_name}.{name}", value)
            if inspect.isclass(value) and not issubclass(value, BaseException):
                yield from _members(f"{module_name}.{name}", value)


def _members(class_name: str, kind: type) -> Iterator[PublicThing]:
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield PublicThing(f"{class_name}.{name}", member)


def examples_in(docstring: str) -> list[str]:
    return [textwrap.dedent(match[2]) for match in EXAMPLE.finditer(f"{docstring}\n")]


def internal_imports(source: str) -> list[str]:
    """The imports of a program that are not public names of Antiphon."""
    problems: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "antiphon"]
            problems += [name for name in names if name not in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "antiphon":
            module = MODULES.get(node.module or "")
            exported = {*getattr(module, "__all__", ())}
            if node.module == "antiphon":
                exported |= {name.partition(".")[2] for name in MODULES}
            problems += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in exported]
    return problems
