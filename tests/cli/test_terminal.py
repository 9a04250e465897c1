"""Colours only on terminals that support them, and no control characters from outside."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.network import Terminal
from tests.cli.pseudo_terminal import PseudoTerminal

from antiphon.cli.terminal import StatusLine, TextStyler, one_line, printable, printable_json


def test_styler_colours_text_on_a_terminal() -> None:
    paint = TextStyler(Terminal(), {"TERM": "xterm"})
    assert paint.has_colours
    assert paint("dim", "a") == "\x1b[2ma\x1b[0m"
    assert paint("dim", "") == ""


@pytest.mark.parametrize(
    ("stream", "environ"),
    [(io.StringIO(), {"TERM": "xterm"}), (Terminal(), {"NO_COLOR": "1"}), (Terminal(), {"TERM": "dumb"})],
    ids=["no terminal", "NO_COLOR", "a dumb terminal"],
)
def test_styler_leaves_text_plain_elsewhere(stream: io.StringIO, environ: dict[str, str]) -> None:
    paint = TextStyler(stream, environ)
    assert not paint.has_colours
    assert paint("red", "a") == "a"


def test_styler_ignores_an_empty_no_color() -> None:
    assert TextStyler(Terminal(), {"NO_COLOR": ""}).has_colours


@settings(max_examples=30)
@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_printable_removes_control_characters(text: str) -> None:
    cleaned = printable(text)
    assert all(char in "\n\t" or not (ord(char) < 32 or 127 <= ord(char) < 160) for char in cleaned)
    assert [char for char in text if char in cleaned] == list(cleaned)


def test_printable_keeps_newlines_and_tabs() -> None:
    assert printable("a\r\n\tb\x1b[2J\x9b31m\x07é") == "a\n\tb[2J31mé"


DIRECTION_CHARACTERS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("character", DIRECTION_CHARACTERS)
def test_every_form_escapes_characters_that_change_the_direction(character: str) -> None:
    escape = f"\\u{ord(character):04x}"
    assert printable(f"a{character}b") == one_line(f"a{character}b") == f"a{escape}b"
    shown = printable_json(json.dumps({"a": character}, ensure_ascii=False).encode())
    assert escape in shown
    assert json.loads(shown) == {"a": character}


def test_one_line_joins_lines() -> None:
    assert one_line(" a\n\nb\x1b\tc ") == "a b c"


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=3), st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]))))
def test_printable_json_is_equal_json_on_one_line(value: dict[str, str]) -> None:
    raw = json.dumps(value, ensure_ascii=False, indent=1).encode()
    shown = printable_json(raw)
    assert json.loads(shown) == value
    assert "\n" not in shown
    assert printable(shown) == shown


def test_status_line_is_replaced_and_erased() -> None:
    err = Terminal()
    with StatusLine(err, {"NO_COLOR": "1"}) as status:
        status.show("one")
        assert err.getvalue() == "one …"
        status.show("two")
        assert err.getvalue() == "one …\r     \rtwo …"
    status.clear()
    assert err.getvalue() == "one …\r     \rtwo …\r     \r"


def test_status_line_is_cut_to_the_width_of_the_terminal_and_has_no_control_characters() -> None:
    err = Terminal()
    StatusLine(err, {"NO_COLOR": "1"}).show("waiting for \x1b[2J\u202e" + "x" * 100)
    assert err.getvalue().startswith("waiting for [2J\\u202exxx")
    assert len(err.getvalue()) == 79


def test_status_line_is_dimmed() -> None:
    err = Terminal()
    StatusLine(err, {"TERM": "xterm"}).show("one")
    assert err.getvalue() == "\x1b[2mone …\x1b[0m"


def test_status_line_needs_a_terminal() -> None:
    err = io.StringIO()
    with StatusLine(err, {}).show("one"):
        pass
    assert err.getvalue() == ""


@pytest.mark.io
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("check", "URL"), "asking URL/v1 for its models …"),
        (("probe", "URL"), "looking for a server at URL/v1 …"),
        (("models",), "asking URL for its models …"),
        (("ask", "Hi"), "asking the gateway at URL …"),
        (("ask", "-m", "mock-1", "Hi"), "waiting for mock-1 …"),
        (("chat",), "asking the gateway at URL …"),
    ],
)
def test_command_says_what_it_does_before_an_answer_arrives(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    """The server accepts connections and never answers. The first line stands there before the command is imported."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        terminal = PseudoTerminal(*(word.replace("URL", url) for word in words), url=url, home=tmp_path)
        try:
            terminal.wait_for(f"antiphon {words[0]} …")
            terminal.wait_for(line.replace("URL", url))
            terminal.write(b"\x03")
            assert terminal.wait() == 130
        finally:
            terminal.close()
