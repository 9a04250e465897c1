"""`gateway/transcript`: a conversation as a text."""

from __future__ import annotations

from tests.gateway.test_conversation_steps import call, custom, items, output, says

from antiphon.dialects.common.token_estimate import estimate_text
from antiphon.gateway.conversation_steps import summary_message
from antiphon.gateway.transcript import make_transcript

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def test_transcript_contains_every_item() -> None:
    transcript = make_transcript(
        "Be kind.",
        [
            *items(says("system", "hidden")),
            summary_message("long ago"),
            *items(
                says("user", "Look at this."),
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Here:"}, IMAGE, {"type": "refusal", "refusal": "No."}],
                },
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "Hm."}],
                    "content": [{"type": "reasoning_text", "text": "Well."}],
                },
                {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
                call("a"),
                custom("b"),
                output("a"),
                {
                    "type": "custom_tool_call_output",
                    "call_id": "b",
                    "output": [{"type": "input_text", "text": "done"}, IMAGE],
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "g", "input": {}}],
                },
                {"type": "compaction", "encrypted_content": "another server's"},
                {"type": "acme:thing", "x": 1},
                {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            ),
        ],
        None,
    )
    assert transcript.text.split("\n\n") == [
        "[instructions to the assistant, still in force]\nBe kind.",
        *(f"[summary of the earlier conversation]\n{summary_message('long ago').content}").split("\n\n"),
        "[user]\nLook at this.",
        "[user]\nHere:\n[image omitted: image/png data]\nNo.",
        "[reasoning of the assistant]\nHm.\nWell.",
        "[tool call of the assistant: f, id a]\n{}",
        "[tool call of the assistant: f, id b]\nx",
        "[result of tool call a]\n42",
        "[result of tool call b]\ndone\n[image omitted: image/png data]",
        '[assistant]\n{"type":"tool_use","id":"c","name":"g","input":{}}',
        '[acme:thing]\n{"type":"acme:thing","x":1}',
        '[web_search_call]\n{"type":"web_search_call","id":"ws_1","status":"completed"}',
    ]
    assert (transcript.omitted_items, transcript.media_parts) == (0, 2)


def test_transcript_cuts_long_outputs_in_the_middle() -> None:
    long = "begin " + "x" * 100_000 + " end"
    transcript = make_transcript(None, items({**output("a"), "output": long}), None)
    assert transcript.text.startswith("[result of tool call a]\nbegin xxx")
    assert transcript.text.endswith("xxx end")
    assert "\n[… 84011 characters omitted …]\n" in transcript.text
    assert len(transcript.text) < 17_000


def test_transcript_is_shortened_to_the_limit() -> None:
    conversation = items(*(says("user", f"{at} " + "x" * 10_000) for at in range(20)))
    whole = make_transcript(None, conversation, None)
    tokens = estimate_text(whole.text)
    cut = make_transcript(None, conversation, tokens // 2)
    assert (cut.omitted_items, estimate_text(cut.text) <= tokens // 2) == (0, True)
    few = make_transcript("Be kind.", conversation, 2_000)
    assert 0 < few.omitted_items < 20
    assert estimate_text(few.text) < 2_100
    assert "Be kind." in few.text
    assert f"[{few.omitted_items} older items omitted" in few.text
    assert "[user]\n19 x" in few.text
    assert "[user]\n0 x" not in few.text


def test_transcript_contains_at_least_one_item() -> None:
    assert make_transcript(None, items(says("user", "x" * 9_000)), 1).omitted_items == 0


def test_transcript_says_that_a_tool_failed() -> None:
    """F-4: the model that writes the summary must know."""
    assert (
        make_transcript(None, items({**output("a"), "is_error": True}), None).text
        == "[result of tool call a]\n[tool error] 42"
    )
