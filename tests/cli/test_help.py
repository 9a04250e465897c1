"""The format of help texts."""

from __future__ import annotations

import argparse

import pytest

from antiphon.cli.help import HELP_FORMAT


def test_help_wraps_paragraphs_but_not_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    example = "examples:\n  antiphon ask --model local --image cat.png 'What is this?'"
    parser = argparse.ArgumentParser(
        prog="x", description="one paragraph that is too long " * 3, epilog=example, **HELP_FORMAT
    )
    output = parser.format_help()
    assert example in output
    assert all(len(line) < 40 for line in output.partition("examples:")[0].splitlines())


def test_options_are_not_abbreviated() -> None:
    parser = argparse.ArgumentParser(prog="x", exit_on_error=False, **HELP_FORMAT)
    parser.add_argument("--model")
    assert parser.parse_known_args(["--mod", "y"])[1] == ["--mod", "y"]


def test_option_with_two_names_shows_its_value_once() -> None:
    """On every version of Python."""
    parser = argparse.ArgumentParser(prog="x", **HELP_FORMAT)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write")
    assert "  -o, --output FILE  where to write\n" in parser.format_help()
