"""Notes that replace omitted parts."""

from __future__ import annotations

import pytest
from msgspec import Raw

from antiphon.dialects.common.placeholders import (
    placeholder_for,
    replace_with_placeholder,
    text_or_placeholder,
    type_of,
)
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    LogProb,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolUse,
    UnknownAnnotation,
    UnknownContent,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import WebSearchTool


@pytest.mark.parametrize(
    ("part", "note"),
    [
        (InputImageParam(image_url="https://i/1.png"), "[image omitted: https://i/1.png]"),
        (InputImageParam(image_url="data:image/png;base64,AAAA"), "[image omitted: image/png data]"),
        (InputImageParam(file_id="file_1"), "[image omitted: file_1]"),
        (InputImageParam(), "[image omitted: no source]"),
        (InputFileParam(filename="a.pdf", file_url="https://f/a"), "[file omitted: a.pdf, https://f/a]"),
        (InputFileParam(filename="a.pdf", file_data="AAAA"), "[file omitted: a.pdf, data]"),
        (InputVideo(video_url="https://v/1"), "[video omitted: https://v/1]"),
        (InputAudio(input_audio=InputAudioData(data="AAAA", format="wav")), "[audio omitted: wav]"),
        (UnknownContent(kind="acme:part", raw=Raw(b"{}")), "[acme:part omitted]"),
        (ToolUse(id="1", name="n", input={}), "[tool_use omitted]"),
    ],
)
def test_placeholder_names_the_part_but_not_its_data(part: ContentParam, note: str) -> None:
    assert placeholder_for(part) == note


def test_type_of_returns_the_type_of_any_object() -> None:
    assert type_of(WebSearchTool()) == "web_search"
    assert type_of(UnknownContent(kind="acme:part", raw=Raw(b"{}"))) == "acme:part"


def test_replaced_part_is_a_loss() -> None:
    """F-4."""
    losses = Losses()
    assert (
        replace_with_placeholder(InputVideo(video_url="https://v/1"), "input[0]", "nobody looks", losses)
        == "[video omitted: https://v/1]"
    )
    assert [(loss.path, loss.what, loss.why) for loss in losses] == [
        ("input[0]", "video omitted: https://v/1", "nobody looks")
    ]


@pytest.mark.parametrize(
    "part",
    [InputText(text="so"), Text(text="so"), SummaryText(text="so"), ReasoningText(text="so"), Refusal(refusal="so")],
)
def test_text_of_every_kind_of_text_part_is_returned(part: ContentParam) -> None:
    losses = Losses()
    assert text_or_placeholder(part, "p", "no place", losses) == "so"
    assert not list(losses)


def test_other_fields_of_a_text_part_are_losses() -> None:
    """F-4."""
    losses = Losses()
    citation = UnknownAnnotation(kind="acme:note", raw=Raw(b"{}"))
    logprobs = [LogProb(token="so", logprob=0.0, bytes=[], top_logprobs=[])]
    part = OutputTextParam(text="so", annotations=[citation], logprobs=logprobs, extra={"x": Raw(b"1")})
    assert text_or_placeholder(part, "p", "no place", losses) == "so"
    assert [loss.path for loss in losses] == ["p.annotations", "p.logprobs", "p.x"]


def test_media_become_placeholders_where_only_text_is_allowed() -> None:
    losses = Losses()
    assert text_or_placeholder(InputImageParam(file_id="file_1"), "p", "no place", losses) == "[image omitted: file_1]"
    assert [loss.why for loss in losses] == ["no place"]
