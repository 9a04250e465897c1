"""Content parts of the hub as chat parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from antiphon.dialects.chat.content_out import ContentFromHub, text_or_parts
from antiphon.dialects.chat.wire import ChatWire, PartOut
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    UnknownContent,
)
from antiphon.protocol.losses import Losses

EXTRA = {"x": Raw(b"1")}
UNKNOWN = UnknownContent(kind="acme:part", raw=Raw(b"{}"))
AUDIO = InputAudio(input_audio=InputAudioData(data="AA", format="wav"))


def parts(part: ContentParam, wire: ChatWire | None = None) -> tuple[Any, list[str]]:
    losses = Losses()
    [made] = ContentFromHub(wire or ChatWire(), losses).parts([part], "input[0]", "content")
    return msgspec.to_builtins(made), [loss.path for loss in losses]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_part_of_another_type_is_sent_for_chat_clients() -> None:
    losses = Losses()
    content = ContentFromHub(ChatWire(native_types=True), losses)
    assert content.parts([UNKNOWN], "input[0]", "content") == [UNKNOWN.raw]
    assert len(losses) == 0


@pytest.mark.parametrize(
    ("part", "made", "lost"),
    [
        (InputText(text="a", extra=EXTRA), text("a"), [".x"]),
        (Text(text="a"), text("a"), []),
        (SummaryText(text="a"), text("a"), []),
        (ReasoningText(text="a"), text("a"), []),
        (OutputText(text="a", annotations=[]), text("a"), []),
        (Refusal(refusal="no"), text("no"), []),
        (InputImageParam(image_url="u", extra=EXTRA), {"type": "image_url", "image_url": {"url": "u"}}, [".x"]),
        (
            InputImageParam(image_url="u", detail="low"),
            {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
            [],
        ),
        (InputImageParam(image_url="u", detail=None), {"type": "image_url", "image_url": {"url": "u"}}, []),
        (
            InputImageParam(image_url="u", detail="original"),
            {"type": "image_url", "image_url": {"url": "u", "detail": "high"}},
            [".detail"],
        ),
        (InputImageParam(file_id="file_1"), text("[image omitted: file_1]"), [""]),
        (
            InputImageParam(image_url="u", file_id="file_1"),
            {"type": "image_url", "image_url": {"url": "u"}},
            [".file_id"],
        ),
        (
            InputFileParam(file_data="AA", filename="f", file_url="https://f", file_id="file_1", extra=EXTRA),
            {"type": "file", "file": {"file_data": "AA", "filename": "f"}},
            [".file_id", ".file_url", ".x"],
        ),
        (InputFileParam(file_id="file_1"), {"type": "file", "file": {"file_id": "file_1"}}, []),
        (InputFileParam(file_url="https://f"), text("[file omitted: https://f]"), [""]),
        (AUDIO, {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, []),
        (
            InputAudio(input_audio=InputAudioData(data="AA", format="wav", extra=EXTRA), extra=EXTRA),
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            [".x", ".input_audio.x"],
        ),
        (InputVideo(video_url="https://v"), text("[video omitted: https://v]"), [""]),
        (UNKNOWN, text("[acme:part omitted]"), [""]),
    ],
)
def test_part_is_translated_or_noted_and_losses_are_named_F4(part: ContentParam, made: Any, lost: list[str]) -> None:
    assert parts(part) == (made, [f"input[0].content[0]{path}" for path in lost])


def test_image_becomes_a_note_for_servers_without_images() -> None:
    made, losses = parts(InputImageParam(image_url="https://i"), ChatWire(images=False))
    assert made == text("[image omitted: https://i]")
    assert losses == ["input[0].content[0]"]


def test_texts_replaces_other_parts_by_notes() -> None:
    losses = Losses()
    content = ContentFromHub(ChatWire(), losses)
    assert content.texts([InputText(text="a"), AUDIO, UNKNOWN], "input[2]", "content", 5) == [
        "a",
        "[audio omitted: wav]",
        "[acme:part omitted]",
    ]
    assert [loss.path for loss in losses] == ["input[2].content[6]", "input[2].content[7]"]
    assert content.texts("a", "", "") == ["a"]


def test_text_parts_alone_become_one_string() -> None:
    one, two = PartOut(type="text", text="a"), PartOut(type="image_url", image_url={"url": "u"})
    assert text_or_parts([one, one]) == "a\na"
    assert text_or_parts([]) == ""
    assert text_or_parts([one, two]) == [one, two]
