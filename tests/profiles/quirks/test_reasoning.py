"""Reasoning in a history, for servers that would refuse it."""

from __future__ import annotations

from tests.profiles.quirk_runs import run_quirk

from antiphon.profiles.quirks.reasoning import ReasoningAsTextOptions

SEALED = {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}
OPEN = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "short"}],
    "content": [{"type": "reasoning_text", "text": "long"}],
}
SUMMED = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
}
USER = {"type": "message", "role": "user", "content": "hi"}


def test_reasoning_is_dropped_by_name() -> None:
    """F-4."""
    sent, losses = run_quirk("drop_reasoning", input=[USER, SEALED, OPEN])
    assert sent["input"] == [USER]
    assert losses == {"input[1]": "earlier reasoning", "input[2]": "earlier reasoning"}


def test_reasoning_becomes_text_between_marks() -> None:
    sent, losses = run_quirk("reasoning_as_text", input=[USER, OPEN, SUMMED])
    assert [item["content"] for item in sent["input"]] == ["hi", "<think>\nlong\n</think>", "<think>\na\n\nb\n</think>"]
    assert [item["role"] for item in sent["input"]] == ["user", "assistant", "assistant"]
    assert losses == {"input[1].summary": "the field 'summary'"}


def test_the_marks_are_the_profiles_choice() -> None:
    sent, _ = run_quirk("reasoning_as_text", ReasoningAsTextOptions(before="(", after=")"), input=[OPEN])
    assert sent["input"][0]["content"] == "(long)"


def test_sealed_reasoning_cannot_become_text() -> None:
    """F-4, RSN-2."""
    sent, losses = run_quirk("reasoning_as_text", input=[USER, SEALED])
    assert sent["input"] == [USER]
    assert losses == {"input[1]": "earlier reasoning", "input[1].encrypted_content": "the field 'encrypted_content'"}


def test_a_summary_stands_in_for_reasoning_that_is_not_open() -> None:
    """F-4: what has open text is left alone, what is only sealed goes."""
    sent, losses = run_quirk("open_reasoning", input=[USER, OPEN, SUMMED, SEALED])
    assert sent["input"] == [
        USER,
        OPEN,
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a\n\nb"}]},
    ]
    assert losses == {
        "input[2].summary": "the form of a reasoning summary",
        "input[3]": "earlier reasoning",
    }
