"""Media in a gemini client's parts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dialects.gemini.asking import ask, user

from antiphon.dialects.gemini.content_in import standard_base64
from antiphon.protocol.content import InputAudio, InputAudioData, InputFileParam, InputImageParam, InputVideo
from antiphon.protocol.items import MessageParam


def audio(format: str) -> InputAudio:
    return InputAudio(input_audio=InputAudioData(data="AAAA", format=format))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"inlineData": {"mimeType": "image/png", "data": "-_8"}},
            InputImageParam(image_url="data:image/png;base64,+/8="),
        ),
        (
            {"inlineData": {"mimeType": "application/pdf", "data": "AAAA", "displayName": "a.pdf"}},
            InputFileParam(file_data="data:application/pdf;base64,AAAA", filename="a.pdf"),
        ),
        (
            {"inlineData": {"mimeType": "audio/mpeg", "data": "AAAA"}},
            InputAudio(input_audio=InputAudioData(data="AAAA", format="mp3")),
        ),
        (
            {"inlineData": {"mimeType": "audio/ogg", "data": "AAAA"}},
            InputAudio(input_audio=InputAudioData(data="AAAA", format="ogg")),
        ),
        ({"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}, InputVideo(video_url="data:video/mp4;base64,AAAA")),
        (
            {"fileData": {"mimeType": "image/png", "fileUri": "https://a.example/i"}},
            InputImageParam(image_url="https://a.example/i"),
        ),
        (
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/v"}},
            InputVideo(video_url="https://a.example/v"),
        ),
        ({"fileData": {"fileUri": "files/1", "displayName": "x"}}, InputFileParam(file_url="files/1", filename="x")),
    ],
)
def test_media_kind_follows_the_media_type(part: dict[str, Any], expected: Any) -> None:
    asked = ask(user(part))
    assert asked.items == [MessageParam(role="user", content=[expected])]
    assert asked.lost == []


def test_unknown_media_fields_are_losses() -> None:
    """F-4."""
    blob, file = {"mimeType": "image/png", "data": "", "acme": 1}, {"fileUri": "x", "acme": 1}
    lost = ask(user({"inlineData": blob}, {"fileData": file})).lost
    assert lost == ["contents[0].parts[0].inlineData.acme", "contents[0].parts[1].fileData.acme"]


@pytest.mark.parametrize(
    ("given", "expected"), [("", ""), ("AA", "AA=="), ("AA==", "AA=="), ("-_", "+/=="), ("AAAA", "AAAA")]
)
def test_base64_is_converted_to_the_standard_alphabet(given: str, expected: str) -> None:
    assert standard_base64(given) == expected
