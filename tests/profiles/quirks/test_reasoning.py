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


def test_drop_reasoning_drops_and_reports_reasoning() -> None:
    """F-4."""
    sent, losses = run_quirk("drop_reasoning", input=[USER, SEALED, OPEN])
    assert sent["input"] == [USER]
    assert losses == {"input[1]": "earlier reasoning", "input[2]": "earlier reasoning"}


def test_reasoning_as_text_wraps_reasoning_in_marks() -> None:
    sent, losses = run_quirk("reasoning_as_text", input=[USER, OPEN, SUMMED])
    assert [item["content"] for item in sent["input"]] == ["hi", "<think>\nlong\n</think>", "<think>\na\n\nb\n</think>"]
    assert [item["role"] for item in sent["input"]] == ["user", "assistant", "assistant"]
    assert losses == {"input[1].summary": "the field 'summary'"}


def test_reasoning_as_text_has_configurable_marks() -> None:
    sent, _ = run_quirk("reasoning_as_text", ReasoningAsTextOptions(before="(", after=")"), input=[OPEN])
    assert sent["input"][0]["content"] == "(long)"


def test_reasoning_as_text_drops_sealed_reasoning() -> None:
    """F-4, RSN-2."""
    sent, losses = run_quirk("reasoning_as_text", input=[USER, SEALED])
    assert sent["input"] == [USER]
    assert losses == {"input[1]": "earlier reasoning", "input[1].encrypted_content": "the field 'encrypted_content'"}


def test_open_reasoning_sends_summaries_as_reasoning() -> None:
    """F-4: plain text is kept, content that is only sealed is dropped."""
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


def test_open_reasoning_returns_what_was_shown_as_a_summary() -> None:
    """RSN-4: the client asked for summaries and got the server's own text, so nothing is lost. A summary beside
    encrypted content was a summary."""
    sealed = {**SUMMED, "encrypted_content": "sealed"}
    sent, losses = run_quirk("open_reasoning", input=[USER, SUMMED, sealed], reasoning={"summary": "auto"})
    assert sent["input"][1] == {
        **{"type": "reasoning", "summary": []},
        "content": [{"type": "reasoning_text", "text": "a\n\nb"}],
    }
    assert losses == {"input[2].summary": "the form of a reasoning summary"}
