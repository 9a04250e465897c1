"""Estimates the number of tokens of a request, for upstreams that do not count them. Pure; the time has a bound.

Each model divides text in its own way, so the estimate is no model's exact count. It is meant to be slightly too large:
within 10 % for English, code and JSON, less exact for scripts that vocabularies treat very differently. Media count as
much as servers usually charge for them; their content is not decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

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
from antiphon.protocol.tools import ToolList, ToolParam

SAMPLES: Final = 64
#: For a count that a later one replaces: texts of more than 8,192 characters are sampled.
FEW_SAMPLES: Final = 16
SAMPLE_CHARACTERS: Final = 256


def estimate_request(request: Request, samples: int = SAMPLES) -> int:
    """Estimates everything that a model reads: instructions, items, tools, and the schema of the answer.

    `samples` is the number of samples of a long text: fewer samples take less time and are less exact.
    """
    counter = _TokenCounter()
    counter.tokens += REQUEST_OVERHEAD_TOKENS
    counter.add_items(input_items(request))
    counter.add_tools(request.tools or ())
    if request.instructions:
        counter.tokens += ITEM_OVERHEAD_TOKENS
        counter.add_instructions(request.instructions)
    if request.text and isinstance(request.text.format, JsonSchemaFormatParam):
        counter.add_json(request.text.format)
    return counter.total(samples)


def estimate_items(items: Iterable[ItemParam]) -> int:
    """Estimates the items of a conversation, each with its overhead in a prompt."""
    counter = _TokenCounter()
    counter.add_items(items)
    return counter.total()


def estimate_text(text: str, samples: int = SAMPLES) -> int:
    """Estimates a text. A text that is longer than twice its samples is sampled at regular distances."""
    length = len(text)
    if length <= 2 * samples * SAMPLE_CHARACTERS:
        tokens = len(TOKEN.findall(text))
    else:
        starts = range(0, length - SAMPLE_CHARACTERS + 1, (length - SAMPLE_CHARACTERS) // (samples - 1))
        sampled_tokens = sum(len(TOKEN.findall(text, start, start + SAMPLE_CHARACTERS)) for start in starts)
        tokens = sampled_tokens * length // (len(starts) * SAMPLE_CHARACTERS)
    return tokens + (tokens + 19) // 20  # 5 % more than the vocabularies that TOKEN was fitted to


class _TokenCounter:
    """The tokens counted so far, and the texts that are estimated at the end, all together: this bounds the time."""

    def __init__(self) -> None:
        self.tokens = 0
        self.texts: list[str] = []
        self._value_count = 0

    def total(self, samples: int = SAMPLES) -> int:
        return self.tokens + estimate_text("\n".join(self.texts), samples)

    def add_items(self, items: Iterable[ItemParam]) -> None:
        for item in items:
            self.tokens += ITEM_OVERHEAD_TOKENS
            self._add_item(item)

    def add_tools(self, tools: Iterable[ToolParam]) -> None:
        if type(tools) is ToolList and tools.echo is not None:
            self.tokens += len(tools.echo) // TEXT_BYTES_PER_TOKEN
            return
        for tool in tools:
            self.tokens += ITEM_OVERHEAD_TOKENS
            self.add_json(tool)

    def add_instructions(self, instructions: str | Raw) -> None:
        if isinstance(instructions, str):
            self.texts.append(instructions)
        else:  # of a large request; they stay encoded
            self.tokens += len(instructions) // TEXT_BYTES_PER_TOKEN

    def add_json(self, value: Any) -> None:
        """Counts the values of a JSON document. Beyond `MAX_VALUES` values, the document counts as text."""
        encoded = codec.encode(value)
        self._value_count += encoded.count(b",") + 1
        if self._value_count > MAX_VALUES:
            self.texts.append(encoded.decode())
            return
        pending_values = [msgspec.json.decode(encoded)]
        while pending_values:  # no recursion: the document may be deeply nested
            match pending_values.pop():
                case str() as text if text.startswith("data:"):
                    self.tokens += _estimate_media(text)
                case str() as text:
                    self.texts.append(text)
                case dict() as members:
                    pending_values += members.keys()
                    pending_values += members.values()
                case list() as members:
                    pending_values += members
                case _:
                    pass  # for example a number: one token
            self.tokens += 1  # quotation marks, a colon, a comma

    def _add_item(self, item: ItemParam) -> None:
        match item:
            case MessageParam(content=content):
                self._add_content(content)
            case FunctionCallParam(name=name, arguments=text) | CustomToolCallParam(name=name, input=text):
                self.tokens += CALL_OVERHEAD_TOKENS
                self.texts += (name, text)
            case FunctionCallOutputParam(output=output) | CustomToolCallOutputParam(output=output):
                self.tokens += CALL_OVERHEAD_TOKENS
                self._add_content(output)
            case ReasoningParam(encrypted_content=str() as sealed) if not item.content:
                self.tokens += len(sealed) // ENCRYPTED_CHARACTERS_PER_TOKEN
            case ReasoningParam():
                self._add_content(item.content or item.summary)
            case CompactionParam(encrypted_content=sealed):
                self.tokens += len(sealed) // ENCRYPTED_CHARACTERS_PER_TOKEN
            case AdditionalTools(tools=tools):
                self.add_tools(tools)
            case ImageGenerationCall():
                self.tokens += IMAGE_TOKENS
            case ItemReference() | CompactionTrigger():
                pass  # models do not get these
            case _:
                self.add_json(item)

    def _add_content(self, content: str | Iterable[ContentParam | ToolOutputContentParam]) -> None:
        if isinstance(content, str):
            self.texts.append(content)
            return
        for part in content:
            self._add_part(part)

    def _add_part(self, part: ContentParam | ToolOutputContentParam) -> None:
        match part:
            case InputText() | OutputTextParam() | Text() | SummaryText() | ReasoningText():
                self.texts.append(part.text)
            case Refusal():
                self.texts.append(part.refusal)
            case InputImageParam(detail=detail):
                self.tokens += SMALL_IMAGE_TOKENS if detail == "low" else IMAGE_TOKENS
            case InputFileParam(file_data=str() as data):
                self.tokens += _estimate_media(data)
            case InputFileParam():
                self.tokens += FILE_TOKENS
            case InputAudio():
                self.tokens += len(part.input_audio.data) * 3 // 4 // AUDIO_BYTES_PER_TOKEN + 1
            case InputVideo():
                self.tokens += VIDEO_TOKENS
            case _:
                self.add_json(part)


def _estimate_media(data: str) -> int:
    """Estimates a file, given as a data URL or as base64, from its type and size."""
    kind, _, body = data.rpartition(",")
    size = len(body) * 3 // 4
    if kind.startswith("data:image/"):
        return IMAGE_TOKENS
    if kind.startswith("data:audio/"):
        return size // AUDIO_BYTES_PER_TOKEN + 1
    if kind.startswith(("data:text/", "data:application/json")):
        return size // TEXT_BYTES_PER_TOKEN + 1
    return max(FILE_TOKENS, size // DOCUMENT_BYTES_PER_TOKEN)


# One match is about one token: a word or the first letters of a long word, two digits, three punctuation marks, one
# character of a script that is written without spaces. A single space belongs to the word after it.
TOKEN: Final = re.compile(
    r"[A-Z]?[a-z]{1,8}|[A-Z]{1,3}|[0-9]{1,2}|[!-/:-@\[-`{-~]{1,3}|\s{2,}"
    r"|[\u0900-\u0fff\u3040-\u9fff\uac00-\ud7af\U00010000-\U0010ffff]|[^\x00-\x7f]{1,2}"
)
MAX_VALUES: Final = 50_000  # values of a JSON document, not counting names
REQUEST_OVERHEAD_TOKENS: Final = 3
ITEM_OVERHEAD_TOKENS: Final = 4
CALL_OVERHEAD_TOKENS: Final = 6
IMAGE_TOKENS: Final = 1_100
SMALL_IMAGE_TOKENS: Final = 85
VIDEO_TOKENS: Final = 5_000
FILE_TOKENS: Final = 1_500  # the minimum, and the estimate for a file of which only the URL is known
ENCRYPTED_CHARACTERS_PER_TOKEN: Final = 6  # encrypted characters per token
AUDIO_BYTES_PER_TOKEN: Final = 500  # bytes per token
TEXT_BYTES_PER_TOKEN: Final = 3
DOCUMENT_BYTES_PER_TOKEN: Final = 30
