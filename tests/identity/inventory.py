"""The fields of the SDKs as a text, one type on each line. `-` marks fields that are not generated.

`python -m tests.identity` writes the text to `fields.txt`. A test compares both, so that a new release of an SDK shows
its new fields.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.identity.generator import Generator
from tests.identity.sdk_types import fields_of, full_name_of
from tests.identity.source import Source
from tests.identity.sources import SOURCES

PATH: Final = Path(__file__).with_name("fields.txt")
PACKAGES: Final = ("openai", "anthropic", "google-genai", "ollama")


def fields_text() -> str:
    """The text for the installed SDKs."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    lines = [line for source in SOURCES.values() for line in _lines(source)]
    return "\n".join([f"# Written by `python -m tests.identity` for {versions}.", *lines, ""])


def count_fields(source: Source) -> tuple[int, int, int]:
    """The number of types, of generated fields, and of fields that are not generated."""
    generated = _fields(source.generator(0), source)
    everything = _fields(_without_exceptions(), source)
    kinds = {kind for kind, _ in generated}
    return len(kinds), len(generated), len(everything - generated)


def _lines(source: Source) -> list[str]:
    generated = _fields(source.generator(0), source)
    kinds = _without_exceptions().kinds(*source.roots)
    lines = []
    for kind in sorted(kinds, key=full_name_of):
        names = [f"{'' if (kind, field.name) in generated else '-'}{field.name}" for field in fields_of(kind)]
        lines.append(f"{source.dialect} {full_name_of(kind)}: {' '.join(sorted(names))}".rstrip())
    return lines


def _fields(generator: Generator, source: Source) -> set[tuple[Any, str]]:
    return {(kind, field.name) for kind in generator.kinds(*source.roots) for field in generator.fields(kind)}


def _without_exceptions() -> Generator:
    return Generator(0, rules={}, left_out=())
