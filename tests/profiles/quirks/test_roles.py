"""The place of system text, and supported roles."""

from __future__ import annotations

from typing import Any

from tests.profiles.quirk_runs import run_quirk

from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.roles import InstructionsToSystemOptions, SystemToInstructionsOptions
from antiphon.protocol.losses import Losses


def test_system_to_instructions_moves_leading_system_messages() -> None:
    """D-1, E-4."""
    sent, losses = run_quirk(
        "system_to_instructions",
        instructions="Be brief.",
        input=[
            {"role": "system", "content": "Be kind."},
            {
                "role": "system",
                "content": [{"type": "input_text", "text": "Be"}, {"type": "input_text", "text": "true."}],
            },
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Now be loud."},
        ],
    )
    assert sent["instructions"] == "Be brief.\n\nBe kind.\n\nBe\n\ntrue."
    assert [item["content"] for item in sent["input"]] == ["hi", "Now be loud."]
    assert losses == {}


def test_system_to_instructions_can_move_all_and_reports_them() -> None:
    """D-1, F-4."""
    sent, losses = run_quirk(
        "system_to_instructions",
        SystemToInstructionsOptions(move="all"),
        input=[{"role": "user", "content": "hi"}, {"role": "system", "content": "Be loud."}],
    )
    assert sent["instructions"] == "Be loud."
    assert sent["input"] == [{"type": "message", "role": "user", "content": "hi"}]
    assert losses == {"input[1]": "the position of a system message"}


def test_system_to_instructions_reports_images() -> None:
    """F-4."""
    sent, losses = run_quirk(
        "system_to_instructions",
        input=[
            {
                "role": "system",
                "content": [{"type": "input_image", "image_url": "u"}, {"type": "input_text", "text": "Look."}],
            }
        ],
    )
    assert sent["instructions"] == "Look."
    assert losses == {"input[0].content[0]": "a part of type 'input_image'"}


def test_system_to_instructions_drops_empty_messages() -> None:
    sent, _ = run_quirk(
        "system_to_instructions", input=[{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]
    )
    assert "instructions" not in sent
    assert len(sent["input"]) == 1


def test_instructions_to_system_adds_a_first_message() -> None:
    sent, losses = run_quirk("instructions_to_system", instructions="Be brief.", input="hi")
    assert "instructions" not in sent
    assert sent["input"] == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "hi"},
    ]
    assert losses == {}


def test_instructions_to_system_changes_no_request_without_instructions() -> None:
    sent, losses = run_quirk("instructions_to_system", input="hi")
    assert (sent["input"], losses) == ("hi", {})


def test_instructions_to_system_can_use_the_developer_role() -> None:
    sent, _ = run_quirk(
        "instructions_to_system", InstructionsToSystemOptions(role="developer"), instructions="Be brief.", input=[]
    )
    assert sent["input"] == [{"type": "message", "role": "developer", "content": "Be brief."}]


def test_system_quirks_combine_to_one_system_message() -> None:
    from antiphon.protocol.codec import decode_request

    request = decode_request(
        b'{"input":[{"role":"user","content":"a"},{"role":"system","content":"b"}],"instructions":"c"}'
    )
    for name, options in [
        ("system_to_instructions", SystemToInstructionsOptions(move="all")),
        ("instructions_to_system", InstructionsToSystemOptions()),
    ]:
        request = QUIRKS[name].apply(request, Losses(), options)
    items: Any = request.input
    assert [(item.role, item.content) for item in items] == [("system", "c\n\nb"), ("user", "a")]


def test_role_quirks_rename_system_and_developer() -> None:
    history = [{"role": role, "content": role} for role in ("system", "developer", "user", "assistant")]
    for quirk, wanted in [
        ("developer_as_system", ["system", "system", "user", "assistant"]),
        ("system_as_developer", ["developer", "developer", "user", "assistant"]),
    ]:
        sent, losses = run_quirk(quirk, input=history)
        assert [item["role"] for item in sent["input"]] == wanted
        assert losses == {}
