"""Widths of terminals and texts."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from antiphon.ops.line_width import cut_text, pad_text, terminal_width, text_width


@pytest.mark.io
@pytest.mark.parametrize(("columns", "expected"), [(57, 57), (0, 80)])
def test_terminal_width_is_that_of_the_terminal(columns: int, expected: int) -> None:
    control, terminal = pty.openpty()
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with open(terminal, "w", encoding="utf-8", closefd=False) as stream:
            assert terminal_width(stream) == expected
    finally:
        os.close(terminal)
        os.close(control)


def test_terminal_width_without_a_terminal_is_the_default() -> None:
    closed = io.StringIO()
    closed.close()
    assert (terminal_width(io.StringIO()), terminal_width(closed)) == (80, 80)


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("模型", 4), ("e\u0301", 1), ("a\u200bb", 2), ("→ é", 3), ("🦉", 2)]
)
def test_text_width_counts_columns(text: str, width: int) -> None:
    assert text_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("abcd", 1, "…"),
        ("abcd", 0, ""),
        ("模型模型", 4, "模…"),
        ("模型模型", 5, "模型…"),
    ],
)
def test_cut_text_is_never_wider_than_the_width(text: str, width: int, expected: str) -> None:
    assert cut_text(text, width) == expected
    assert text_width(expected) <= width


def test_pad_text_fills_columns() -> None:
    assert (pad_text("模", 4), pad_text("abcde", 4)) == ("模  ", "abcde")
