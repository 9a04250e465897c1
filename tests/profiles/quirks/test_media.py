"""Media, for servers that accept only text."""

from __future__ import annotations

import pytest
from tests.profiles.quirk_runs import run_quirk


def test_images_as_notes_replaces_images() -> None:
    """F-4: in messages and in tool results; other parts and strings stay."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    text = {"type": "input_text", "text": "see"}
    sent, losses = run_quirk(
        "images_as_notes",
        input=[
            {"role": "user", "content": [text, image]},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": "https://e.x/i.png"}],
            },
            {"type": "custom_tool_call_output", "call_id": "c", "output": [image]},
            {"type": "function_call_output", "call_id": "c", "output": "plain"},
        ],
    )
    assert sent["input"][0]["content"] == [text, {"type": "input_text", "text": "[image omitted: image/png data]"}]
    assert sent["input"][1]["output"] == [{"type": "input_text", "text": "[image omitted: https://e.x/i.png]"}]
    assert losses == dict.fromkeys(("input[0].content[1]", "input[1].output[0]", "input[2].output[0]"), "an image")


@pytest.mark.parametrize(
    ("part", "note", "loss"),
    [
        (
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            "[image omitted: image/png data]",
            "an image",
        ),
        ({"type": "input_file", "filename": "a.pdf", "file_data": "AAAA"}, "[file omitted: a.pdf, data]", "a file"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "[audio omitted: wav]", "audio"),
        ({"type": "input_video", "video_url": "https://e.x/v.mp4"}, "[video omitted: https://e.x/v.mp4]", "a video"),
    ],
)
def test_media_as_notes_replaces_and_reports_every_kind(part: dict[str, object], note: str, loss: str) -> None:
    """F-4."""
    text = {"type": "input_text", "text": "see"}
    sent, losses = run_quirk("media_as_notes", input=[{"role": "user", "content": [part, text]}])
    assert sent["input"][0]["content"] == [{"type": "input_text", "text": note}, text]
    assert losses == {"input[0].content[0]": loss}


def test_images_as_notes_keeps_files() -> None:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "AAAA"}
    sent, losses = run_quirk("images_as_notes", input=[{"role": "user", "content": [file]}])
    assert sent["input"][0]["content"] == [file]
    assert losses == {}


def test_files_as_notes_keeps_images() -> None:
    """F-4."""
    image = {"type": "input_image", "image_url": "https://e.x/i.png"}
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "AAAA"}
    sent, losses = run_quirk("files_as_notes", input=[{"role": "user", "content": [image, file]}])
    assert sent["input"][0]["content"] == [image, {"type": "input_text", "text": "[file omitted: a.pdf, data]"}]
    assert losses == {"input[0].content[1]": "a file"}
