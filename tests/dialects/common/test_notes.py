"""Notes in place of what was left out."""

from __future__ import annotations

import pytest
from msgspec import Raw

from antiphon.dialects.common.notes import note_of, type_of
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputVideo,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.tools import WebSearchTool


@pytest.mark.parametrize(
    ("part", "note"),
    [
        (InputImageParam(image_url="https://i/1.png"), "[image omitted: https://i/1.png]"),
        (InputImageParam(image_url="data:image/png;base64,AAAA"), "[image omitted: image/png data]"),
        (InputImageParam(file_id="file_1"), "[image omitted: file_1]"),
        (InputImageParam(), "[image omitted: nothing was given]"),
        (InputFileParam(filename="a.pdf", file_url="https://f/a"), "[file omitted: a.pdf, https://f/a]"),
        (InputFileParam(filename="a.pdf", file_data="AAAA"), "[file omitted: a.pdf, data]"),
        (InputVideo(video_url="https://v/1"), "[video omitted: https://v/1]"),
        (InputAudio(input_audio=InputAudioData(data="AAAA", format="wav")), "[audio omitted: wav]"),
        (UnknownContent(kind="acme:part", raw=Raw(b"{}")), "[acme:part omitted]"),
        (ToolUse(id="1", name="n", input={}), "[tool_use omitted]"),
    ],
)
def test_a_note_says_what_stood_there_but_never_the_data(part: ContentParam, note: str) -> None:
    assert note_of(part) == note


def test_types_are_told_for_known_and_unknown_things() -> None:
    assert type_of(WebSearchTool()) == "web_search"
    assert type_of(UnknownContent(kind="acme:part", raw=Raw(b"{}"))) == "acme:part"
