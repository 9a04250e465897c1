"""About how many tokens a request has, for upstreams that do not count them. Pure, and as quick for a book as for a page.

Every model cuts text its own way, so this is no model's count. It is meant to err a little on the large side: within a tenth for
English, code and JSON, further off for scripts that vocabularies treat very differently. Media count by what servers usually take
for them, since nothing here looks inside an image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from antiphon.protocol import codec
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolOutputContentParam,
)
from antiphon.protocol.items import (
    AdditionalTools,
    CompactionParam,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ImageGenerationCall,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
)
from antiphon.protocol.request import JsonSchemaFormatParam, Request, input_items
from antiphon.protocol.tools import ToolParam


def estimate_request(request: Request) -> int:
    """All that a model reads of a request: instructions, items, tools, and the schema that its answer must obey."""
    tally = _Tally()
    tally.tokens += AROUND_REQUEST
    tally.items(input_items(request))
    tally.tools(request.tools or ())
    if request.instructions:
        tally.tokens += AROUND_ITEM
        tally.texts.append(request.instructions)
    if request.text and isinstance(request.text.format, JsonSchemaFormatParam):
        tally.json(request.text.format)
    return tally.total()


def estimate_items(items: Iterable[ItemParam]) -> int:
    """The items of a conversation, each with what stands around it in a prompt."""
    tally = _Tally()
    tally.items(items)
    return tally.total()


def estimate_text(text: str) -> int:
    """A text by itself. Of a long one only pieces are looked at, from all over it."""
    length = len(text)
    if length <= LONG:
        tokens = len(TOKEN.findall(text))
    else:
        starts = range(0, length - SLICE + 1, (length - SLICE) // (SLICES - 1))
        sampled_tokens = sum(len(TOKEN.findall(text, start, start + SLICE)) for start in starts)
        tokens = sampled_tokens * length // (len(starts) * SLICE)
    return tokens + (tokens + 19) // 20  # a twentieth more than the vocabularies that this was fitted to


class _Tally:
    """What was counted, and the texts that are still to be: all of them together, so that the time it takes has a bound."""

    def __init__(self) -> None:
        self.tokens = 0
        self.texts: list[str] = []
        self._values = 0

    def total(self) -> int:
        return self.tokens + estimate_text("\n".join(self.texts))

    def items(self, items: Iterable[ItemParam]) -> None:
        for item in items:
            self.tokens += AROUND_ITEM
            self._item(item)

    def tools(self, tools: Iterable[ToolParam]) -> None:
        for tool in tools:
            self.tokens += AROUND_ITEM
            self.json(tool)

    def json(self, shape: Any) -> None:
        """What has no better measure: its JSON, value by value. Values beyond a bound count as the text they are written in."""
        encoded = codec.encode(shape)
        self._values += encoded.count(b",") + 1
        if self._values > MOST_VALUES:
            self.texts.append(encoded.decode())
            return
        left = [msgspec.json.decode(encoded)]
        while left:  # and no recursion: this may be as deep as JSON can be
            match left.pop():
                case str() as text if text.startswith("data:"):
                    self.tokens += _media(text)
                case str() as text:
                    self.texts.append(text)
                case dict() as members:
                    left += members.keys()
                    left += members.values()
                case list() as members:
                    left += members
                case _:
                    pass  # a number, say: what follows is enough for it
            self.tokens += 1  # quotation marks, a colon, a comma

    def _item(self, item: ItemParam) -> None:
        match item:
            case MessageParam(content=content):
                self._content(content)
            case FunctionCallParam(name=name, arguments=text) | CustomToolCallParam(name=name, input=text):
                self.tokens += AROUND_CALL
                self.texts += (name, text)
            case FunctionCallOutputParam(output=output) | CustomToolCallOutputParam(output=output):
                self.tokens += AROUND_CALL
                self._content(output)
            case ReasoningParam(encrypted_content=str() as sealed) if not item.content:
                self.tokens += len(sealed) // SEALED
            case ReasoningParam():
                self._content(item.content or item.summary)
            case CompactionParam(encrypted_content=sealed):
                self.tokens += len(sealed) // SEALED
            case AdditionalTools(tools=tools):
                self.tools(tools)
            case ImageGenerationCall():
                self.tokens += IMAGE_TOKENS
            case ItemReference() | CompactionTrigger():
                pass  # nothing of these is ever read by a model
            case _:
                self.json(item)

    def _content(self, content: str | Iterable[ContentParam | ToolOutputContentParam]) -> None:
        if isinstance(content, str):
            self.texts.append(content)
            return
        for part in content:
            self._part(part)

    def _part(self, part: ContentParam | ToolOutputContentParam) -> None:
        match part:
            case InputText() | OutputTextParam() | Text() | SummaryText() | ReasoningText():
                self.texts.append(part.text)
            case Refusal():
                self.texts.append(part.refusal)
            case InputImageParam(detail=detail):
                self.tokens += SMALL_IMAGE_TOKENS if detail == "low" else IMAGE_TOKENS
            case InputFileParam(file_data=str() as data):
                self.tokens += _media(data)
            case InputFileParam():
                self.tokens += FILE_TOKENS
            case InputAudio():
                self.tokens += len(part.input_audio.data) * 3 // 4 // AUDIO + 1
            case InputVideo():
                self.tokens += VIDEO_TOKENS
            case _:
                self.json(part)


def _media(data: str) -> int:
    """A file, as a data URL or as bare base64, by its kind and its size."""
    kind, _, body = data.rpartition(",")
    size = len(body) * 3 // 4
    if kind.startswith("data:image/"):
        return IMAGE_TOKENS
    if kind.startswith("data:audio/"):
        return size // AUDIO + 1
    if kind.startswith(("data:text/", "data:application/json")):
        return size // PLAIN + 1
    return max(FILE_TOKENS, size // PAGES)


# One match is about one token: a word or the first letters of a long one, two digits, three marks, one character of scripts that
# are written without spaces. A single space belongs to the word after it.
TOKEN: Final = re.compile(
    r"[A-Z]?[a-z]{1,8}|[A-Z]{1,3}|[0-9]{1,2}|[!-/:-@\[-`{-~]{1,3}|\s{2,}"
    r"|[\u0900-\u0fff\u3040-\u9fff\uac00-\ud7af\U00010000-\U0010ffff]|[^\x00-\x7f]{1,2}"
)
MOST_VALUES: Final = 50_000  # of JSON; as many names may stand before them
LONG: Final = 32_768  # characters
SLICES: Final = 64
SLICE: Final = 256

AROUND_REQUEST: Final = 3
AROUND_ITEM: Final = 4
AROUND_CALL: Final = 6
IMAGE_TOKENS: Final = 1_100
SMALL_IMAGE_TOKENS: Final = 85
VIDEO_TOKENS: Final = 5_000
FILE_TOKENS: Final = 1_500  # at least, and where there is only its address
SEALED: Final = 6  # characters a token, of what only its maker can open
AUDIO: Final = 500  # bytes a token
PLAIN: Final = 3
PAGES: Final = 30
