"""The transcripts of the documentation: they are there, and the script that records them reads screens and writes
pages."""

from __future__ import annotations

import pytest
from tests.sources import REPO
from tools.transcripts import SCENES, clean_screen, transcript_of, write_transcript

PAGE = "before\n<!-- transcript: run -->\nold\n<!-- end of transcript -->\nafter\n"


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("install", ['$ uv tool install "antiphon[local]"\n', "$ antiphon serve\n", "The capital of Peru is Lima.\n"]),
        ("init", ["$ antiphon init\n", "[Y/n]", "wrote antiphon.toml", "[[upstreams]]\n"]),
        ("run", ["$ antiphon run llm -- ", "no gateway answers at ", "Lima"]),
        ("chat", ["$ antiphon chat\n", "> The code word is walnut.\n", "did you mean /model?", "saved 1 question to"]),
    ],
)
def test_page_has_the_transcript_of_its_scene(scene: str, expected: list[str]) -> None:
    transcript = transcript_of((REPO / SCENES[scene].page).read_text(encoding="utf-8"), scene)
    position = 0
    for text in expected:
        assert text in transcript[position:], f"no {text!r} in its place"
        position = transcript.index(text, position) + len(text)
    assert "/tmp/" not in transcript
    assert "Traceback" not in transcript


def test_every_scene_is_tested() -> None:
    assert set(SCENES) == {"install", "init", "run", "chat"}


def test_clean_screen_removes_prompt_padding_and_folders() -> None:
    screen = "$ ls /srv/x/a   \n/srv/x/a\n$ \n\n\n"
    assert clean_screen(screen, "/srv/x") == "$ ls /home/you/a\n/home/you/a\n"


def test_clean_screen_counts_installed_packages() -> None:
    screen = "$ uv tool install a\n + a==1\n + b==2\nInstalled 1 executable: a\n$ "
    assert clean_screen(screen, "/x") == "$ uv tool install a\n + … 2 packages\nInstalled 1 executable: a\n"


def test_write_transcript_replaces_what_is_between_the_marks() -> None:
    written = write_transcript(PAGE, "run", ["$ one\n", "$ two\n"])
    assert written == (
        "before\n<!-- transcript: run -->\n~~~text\n$ one\n~~~\n\nIn a second terminal:\n\n~~~text\n$ two\n~~~\n"
        "<!-- end of transcript -->\nafter\n"
    )
    assert write_transcript(written, "run", ["$ one\n", "$ two\n"]) == written
    assert transcript_of(written, "run").count("~~~text\n") == 2


@pytest.mark.parametrize("page", ["no marks\n", PAGE + PAGE, "<!-- transcript: run -->\n"])
def test_write_transcript_refuses_a_page_without_its_marks(page: str) -> None:
    with pytest.raises(ValueError, match="expected <!-- transcript: run --> once"):
        write_transcript(page, "run", [])
