"""The two forms of content."""

from __future__ import annotations

from typing import Any

from tests.profiles.quirk_runs import run_quirk

from antiphon.profiles.quirks.content import StringsAsPartsOptions


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def test_strings_as_parts_uses_the_part_type_of_the_role() -> None:
    """C-2."""
    parts = [{"type": "input_text", "text": "as it is"}]
    sent, losses = run_quirk(
        "strings_as_parts",
        input=[message("system", "a"), message("assistant", "b"), message("user", parts), message("user", "c")],
    )
    assert [item["content"] for item in sent["input"]] == [
        [{"type": "input_text", "text": "a"}],
        [{"type": "output_text", "text": "b"}],
        parts,
        [{"type": "input_text", "text": "c"}],
    ]
    assert losses == {}


def test_strings_as_parts_converts_a_string_input() -> None:
    """ITEM-8."""
    sent, _ = run_quirk("strings_as_parts", input="hi")
    assert sent["input"] == [message("user", [{"type": "input_text", "text": "hi"}])]


def test_strings_as_parts_can_be_limited_to_roles() -> None:
    """D-1."""
    sent, _ = run_quirk(
        "strings_as_parts",
        StringsAsPartsOptions(roles=("user",)),
        input=[message("assistant", "a"), message("user", "b")],
    )
    assert [item["content"] for item in sent["input"]] == ["a", [{"type": "input_text", "text": "b"}]]


def test_parts_as_strings_joins_only_text_parts() -> None:
    """F-4: content that a string cannot contain is reported."""
    text = {"type": "input_text", "text": "see"}
    image = {"type": "input_image", "image_url": "https://e.x/i.png"}
    sent, losses = run_quirk(
        "parts_as_strings",
        input=[
            message("user", [text, {**text, "mark": 1}]),
            message("user", [text, image]),
            message("user", "as it is"),
        ],
    )
    assert [item["content"] for item in sent["input"]] == ["see\nsee", [text, image], "as it is"]
    assert losses == {"input[0].content[1].mark": "the field 'mark'"}
