"""Generates docs/python-api.md: the public names of Antiphon with their signatures and docstrings.

PYTHONPATH=. python tools/python_api_page.py
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import antiphon
from antiphon import producer, testing, translate, types

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "python-api.md"
HEAD: Final = """# Python API

This page lists the public names of Antiphon with their signatures and docstrings. `tools/python_api_page.py` generates
it. Every other name is internal ([stability](stability.md)). [Call a model](client.md),
[serve an agent](producer.md), [test a program](testing.md) and [use it as a library](library.md) are the guides.
"""
EXAMPLE: Final = re.compile(r"^Example:\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
STARS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
WIDTH: Final = 100  # of a signature, in characters; longer ones have one parameter on each line


def page() -> str:
    """Returns the text of the page."""
    sections = [_section(module) for module in (antiphon, translate, producer, testing)]
    return f"{HEAD}{''.join(sections)}{_table_of_types()}"


def _section(module: ModuleType) -> str:
    return f"\n## `{module.__name__}`\n" + "".join(_entry(module, name) for name in _names(module))


def _names(module: ModuleType) -> list[str]:
    """The classes and functions that a module exports, without modules and constants."""
    values = {name: getattr(module, name) for name in module.__all__}
    return [name for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)]


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value) and issubclass(value, BaseException):
        bases = value.__mro__[1].__name__
        return f"\n### `{name}`\n\nAn exception, a kind of `{bases}`. {_prose(value)}"
    text = f"\n### `{name}`\n{_signature(name, value)}\n{_prose(value)}"
    return text + "".join(_members(value) if inspect.isclass(value) else ())


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_") or not member.__doc__:
            continue
        if isinstance(member, property):
            yield f"\n#### `{kind.__name__}.{name}`\n\nProperty. {_prose(member)}"
        elif inspect.isfunction(member):
            yield f"\n#### `{kind.__name__}.{name}`\n{_signature(name, member)}\n{_prose(member)}"


def _signature(name: str, value: Any) -> str:
    """The signature as a block of Python, or nothing for a type that has none."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [_parameter(each) for each in _with_markers(signature)]
    result = "" if inspect.isclass(value) or signature.return_annotation is signature.empty else _result(signature)
    keyword = "class " if inspect.isclass(value) else "async def " if inspect.iscoroutinefunction(value) else "def "
    line = f"{keyword}{name}({', '.join(parameters)}){result}"
    if len(line) > WIDTH:
        inner = "".join(f"    {parameter},\n" for parameter in parameters)
        line = f"{keyword}{name}(\n{inner}){result}"
    return f"\n```py\n{line}\n```\n"


def _result(signature: inspect.Signature) -> str:
    return f" -> {_annotation(signature.return_annotation)}"


def _with_markers(signature: inspect.Signature) -> Iterator[inspect.Parameter | str]:
    """The parameters without `self`, with a `*` before the first that can only be passed by name."""
    has_marker = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            has_marker = True
        if parameter.kind is parameter.KEYWORD_ONLY and not has_marker:
            has_marker = True
            yield "*"
        yield parameter


def _parameter(parameter: inspect.Parameter | str) -> str:
    if isinstance(parameter, str):
        return parameter
    stars = STARS.get(parameter.kind, "")
    annotation = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{annotation}"
    return f"{stars}{parameter.name}{annotation} = {_default(parameter.default)}"


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    without_limits = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    return inspect.formatannotation(without_limits)


def _default(value: Any) -> str:
    """A default as a person writes it; objects without such a form are `...`."""
    if value is os.environ:
        return "os.environ"
    shown = getattr(value, "__name__", None) or repr(value)
    return "..." if "<" in shown or " at 0x" in shown else shown


def _prose(value: Any) -> str:
    """The docstring as Markdown: an example is a block of Python."""
    docstring = f"{inspect.getdoc(value) or ''}\n"
    return EXAMPLE.sub(lambda match: f"```python\n{textwrap.dedent(match[1]).strip()}\n```\n", docstring)


def _table_of_types() -> str:
    rows = [f"| `{name}` | {_first_sentence(getattr(types, name))} |\n" for name in types.__all__]
    return (
        "\n## `antiphon.types`\n\nThe types of the hub: requests, items, content, events, and the dictionaries that"
        f" calls accept in their place.\n\n| name | meaning |\n|---|---|\n{''.join(rows)}"
    )


def _first_sentence(value: Any) -> str:
    """The first sentence of the docstring of a class."""
    if value is types.UNSET:
        return "The value of a field that is absent."
    if not inspect.isclass(value):
        return "An alias of other types."
    docstring = inspect.getdoc(value) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.match(r".+?[.!?](?=\s|$)", paragraph)
    return (sentence[0] if sentence else paragraph).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
