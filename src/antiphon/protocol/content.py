"""Content parts of messages, tool outputs and reasoning.

Where the specification requires more of a sent part than of an accepted one (annotations on output text, detail on
images), there are two structs. The sent one is a subclass of the accepted one, so that output can be sent back
(ITEM-6).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown

# REQ-8
MiB = 1024 * 1024
Text10M = Annotated[str, Meta(max_length=10 * MiB)]
ImageUrl = Annotated[str, Meta(max_length=20 * MiB)]
FileData = Annotated[str, Meta(max_length=32 * MiB)]
Index = Annotated[int, Meta(ge=0)]

ImageDetail = Literal["low", "high", "auto", "original"]
Number = int | float


class UnknownContent(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """A content part of a type we do not know."""


class UnknownAnnotation(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """An annotation of a type we do not know (file citations of one provider, say)."""


class UrlCitationParam(Shape, frozen=True, kw_only=True, tag="url_citation"):
    """A citation of a web page, in a request."""

    start_index: Index
    end_index: Index
    url: str
    title: str


class UrlCitation(UrlCitationParam, frozen=True, kw_only=True, tag="url_citation"):
    """A citation of a web page, in a response."""

    start_index: int
    end_index: int


class TopLogProb(Shape, frozen=True, kw_only=True):
    """An alternative token with its log probability."""

    token: str
    logprob: Number
    bytes: list[int]


class LogProb(Shape, frozen=True, kw_only=True):
    """A token of a text with its log probability."""

    token: str
    logprob: Number
    bytes: list[int]
    top_logprobs: list[TopLogProb]


class InputText(Shape, frozen=True, kw_only=True, tag="input_text"):
    """Text of a user, a developer or a tool."""

    text: Text10M


class InputImageParam(Shape, frozen=True, kw_only=True, tag="input_image"):
    """An image: its URL, which may be a data URL, or its id."""

    image_url: ImageUrl | None | UnsetType = UNSET
    detail: ImageDetail | None | UnsetType = UNSET
    file_id: str | None | UnsetType = UNSET


class InputImage(InputImageParam, frozen=True, kw_only=True, tag="input_image"):
    """An image, in a response."""

    image_url: str | None
    detail: ImageDetail


class InputFileParam(Shape, frozen=True, kw_only=True, tag="input_file"):
    """A file: its data, its URL or its id."""

    filename: str | None | UnsetType = UNSET
    file_data: FileData | None | UnsetType = UNSET
    file_url: str | None | UnsetType = UNSET
    file_id: str | None | UnsetType = UNSET


class InputFile(InputFileParam, frozen=True, kw_only=True, tag="input_file"):
    """A file, in a response."""

    filename: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET


class InputVideo(Shape, frozen=True, kw_only=True, tag="input_video"):
    """A video by its URL."""

    video_url: str


class InputAudioData(Shape, frozen=True, kw_only=True):
    """The data and the format of an audio input."""

    data: str
    format: str


class InputAudio(Shape, frozen=True, kw_only=True, tag="input_audio"):
    """Beyond the specification: audio as chat clients send it."""

    input_audio: InputAudioData


class ToolUse(Shape, frozen=True, kw_only=True, tag="tool_use"):
    """Beyond the specification (E-1): a call written inside a message."""

    id: str
    name: str
    input: dict[str, Any]


class ToolResult(Shape, frozen=True, kw_only=True, tag="tool_result"):
    """Beyond the specification (E-2): a result written inside a user message, for servers that want it there."""

    tool_use_id: str
    content: Any = UNSET
    is_error: bool | UnsetType = UNSET


AnnotationParam = UrlCitationParam | UnknownAnnotation
Annotation = UrlCitation | UnknownAnnotation


class OutputTextParam(Shape, frozen=True, kw_only=True, tag="output_text"):
    """A part of a message of the model: text with its annotations, in a request."""

    text: Text10M
    annotations: list[AnnotationParam] | UnsetType = UNSET
    logprobs: list[LogProb] | UnsetType = UNSET


class OutputText(OutputTextParam, frozen=True, kw_only=True, tag="output_text"):
    """A part of a message of the model: text with its annotations, in a response."""

    text: str
    annotations: list[Annotation]  # type: ignore[assignment]  # a narrower list; frozen, so never appended to


class Text(Shape, frozen=True, kw_only=True, tag="text"):
    """Text of an unspecified role."""

    text: str


class SummaryText(Shape, frozen=True, kw_only=True, tag="summary_text"):
    """A part of a summary of reasoning."""

    text: Text10M


class ReasoningText(Shape, frozen=True, kw_only=True, tag="reasoning_text"):
    """A part of reasoning."""

    text: str


class Refusal(Shape, frozen=True, kw_only=True, tag="refusal"):
    """A part of a message of the model: its refusal to answer."""

    refusal: Text10M


# Any part is accepted in a message of any role. Roles restrict only what is sent (C-2).
ContentParam = (
    InputText
    | InputImageParam
    | InputFileParam
    | InputVideo
    | InputAudio
    | OutputTextParam
    | Text
    | SummaryText
    | ReasoningText
    | Refusal
    | ToolUse
    | ToolResult
    | UnknownContent
)
Content = (
    InputText
    | OutputText
    | Text
    | SummaryText
    | ReasoningText
    | Refusal
    | InputImage
    | InputFile
    | InputVideo
    | InputAudio
    | ToolUse
    | ToolResult
    | UnknownContent
)
# TOOL-6
ToolOutputContentParam = InputText | InputImageParam | InputFileParam | InputVideo | UnknownContent
ToolOutputContent = InputText | InputImage | InputFile | InputVideo | UnknownContent
