"""The form of an assistant's earlier turns."""

from __future__ import annotations

from typing import Any

from tests.profiles.quirk_runs import run_quirk

CITATION = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "u", "title": "t"}


def test_assistant_as_string_sends_a_plain_string() -> None:
    """D-1."""
    sent, losses = run_quirk(
        "assistant_as_string",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"role": "assistant", "id": "msg_1", "phase": "final_answer", "content": parts("Hel", "lo")},
        ],
    )
    assert sent["input"][0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert sent["input"][1] == {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "phase": "final_answer",
        "content": "Hello",
    }
    assert losses == {}


def test_assistant_as_string_sends_a_refusal_as_text() -> None:
    """D-1, F-4."""
    sent, losses = run_quirk(
        "assistant_as_string", input=[{"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}]
    )
    assert sent["input"][0]["content"] == "I won't."
    assert losses == {"input[0].content[0]": "the mark that a text is a refusal"}


def test_assistant_as_string_reports_losses() -> None:
    """F-4: citations, unknown members, images; a call inside the message is described in words (D-2)."""
    sent, losses = run_quirk(
        "assistant_as_string",
        input=[
            {
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": [CITATION], "mark": 1},
                    {"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}},
                    {"type": "input_image", "image_url": "u"},
                ],
            }
        ],
    )
    assert sent["input"][0]["content"] == 'a[Tool Call: f({"x":1}) -> call_id: call_1]'
    assert set(losses) == {
        "input[0].content[0].annotations",
        "input[0].content[0].mark",
        "input[0].content[1]",
        "input[0].content[2]",
    }


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": text, "annotations": []} for text in texts]
