"""Parts of messages and tool outputs as blocks: the form of each, and what becomes a note and a loss."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw
from tests.dialects.messages.asking import RICH, ask

from antiphon.dialects.messages.wire import MessagesWire
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
    Refusal,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import Request

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
TEXT = base64.b64encode("wörds".encode()).decode()


def sent(*parts: ContentParam, wire: MessagesWire = RICH) -> tuple[list[dict[str, Any]], list[str]]:
    """The blocks of a user's message after the first one, and the paths of the losses."""
    content = [InputText(text="see"), *parts]
    body, losses = ask(Request(model="m", input=[MessageParam(role="user", content=content)]), wire)
    return body["messages"][0]["content"][1:], [loss.path.removeprefix("input[0].") for loss in losses]


@pytest.mark.parametrize(
    ("part", "source"),
    [
        (InputImageParam(image_url="https://i/1"), {"type": "url", "url": "https://i/1"}),
        (
            InputImageParam(image_url=f"data:image/png;base64,{PNG}"),
            {"type": "base64", "media_type": "image/png", "data": PNG},
        ),
        # Its type follows from its first bytes.
        (
            InputImageParam(image_url=f"data:image/jpeg;base64,{PNG}"),
            {"type": "base64", "media_type": "image/png", "data": PNG},
        ),
        (InputImageParam(file_id="file_01"), {"type": "file", "file_id": "file_01"}),
    ],
)
def test_image_is_sent_by_url_data_or_id(part: InputImageParam, source: dict[str, Any]) -> None:
    assert sent(part) == ([{"type": "image", "source": source}], [])


@pytest.mark.parametrize(
    ("part", "source"),
    [
        (
            InputFileParam(file_data=f"data:application/pdf;base64,{PDF}"),
            {"type": "base64", "media_type": "application/pdf", "data": PDF},
        ),
        (InputFileParam(file_data=PDF), {"type": "base64", "media_type": "application/pdf", "data": PDF}),
        (
            InputFileParam(file_data=f"data:text/markdown;base64,{TEXT}"),
            {"type": "text", "media_type": "text/plain", "data": "wörds"},
        ),
        (InputFileParam(file_url="https://f/1.pdf"), {"type": "url", "url": "https://f/1.pdf"}),
        (InputFileParam(file_id="file_01"), {"type": "file", "file_id": "file_01"}),
    ],
)
def test_file_is_sent_as_a_document(part: InputFileParam, source: dict[str, Any]) -> None:
    assert sent(part) == ([{"type": "document", "source": source}], [])


def test_document_has_its_filename_as_title_and_keeps_citations() -> None:
    """E-4."""
    extra = {"citations": Raw(b'{"enabled":true}'), "x": Raw(b"1")}
    blocks, lost = sent(InputFileParam(file_data=PDF, filename="a.pdf", extra=extra))
    assert (blocks[0]["title"], blocks[0]["citations"]) == ("a.pdf", {"enabled": True})
    assert lost == ["content[1].x"]


@pytest.mark.parametrize(
    "part",
    [
        InputImageParam(image_url="http://i/1"),
        InputImageParam(image_url="data:image/tiff;base64,SUkq"),
        InputImageParam(image_url="data:image/png,raw"),
        InputImageParam(file_id="file-abc"),
        InputImageParam(),
        InputFileParam(file_data="data:application/zip;base64,UEsDBA=="),
        InputFileParam(file_data="data:text/plain;base64,###"),
        InputFileParam(file_data="data:text/plain;base64,ä"),
        InputFileParam(file_data="data:text/plain;base64,"),
        InputFileParam(file_data="data:text/plain;base64,/w=="),
        InputFileParam(file_url="http://f/1.pdf"),
        InputFileParam(filename="a.pdf"),
        InputVideo(video_url="https://v"),
        InputAudio(input_audio=InputAudioData(data="x", format="wav")),
        UnknownContent(kind="acme:part", raw=Raw(b'{"type":"acme:part"}')),
    ],
)
def test_unsupported_content_is_a_note_and_a_loss_F4(part: ContentParam) -> None:
    blocks, lost = sent(part)
    assert blocks[0]["text"].endswith("omitted]") or " omitted: " in blocks[0]["text"]
    assert lost == ["content[1]"]


def test_media_become_notes_for_servers_without_media() -> None:
    """F-4."""
    blind = MessagesWire(images=False, documents=False)
    blocks, lost = sent(
        InputImageParam(image_url="https://i/1"), InputFileParam(file_data=PDF, filename="a.pdf"), wire=blind
    )
    assert [block["text"] for block in blocks] == ["[image omitted: https://i/1]", "[file omitted: a.pdf, data]"]
    assert lost == ["content[1]", "content[2]"]


def test_media_with_two_sources_is_sent_once() -> None:
    """F-4."""
    image = InputImageParam(image_url="https://i/1", file_id="f", detail="low")
    _, lost = sent(
        image,
        InputImageParam(image_url="https://i/1", detail="auto"),
        InputFileParam(file_data=PDF, file_url="u", file_id="f"),
    )
    assert lost == ["content[1].detail", "content[1].file_id", "content[3].file_url", "content[3].file_id"]


def test_cache_control_stays_with_its_text() -> None:
    """E-4."""
    mark = {"cache_control": Raw(b'{"type":"ephemeral","ttl":"1h"}'), "other": Raw(b"1")}
    blocks, lost = sent(InputText(text="x", extra=mark), InputText(text="y", extra={"other": Raw(b"1")}))
    assert blocks == [
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "y"},
    ]
    assert lost == ["content[1].other", "content[2].other"]


def test_moved_system_text_keeps_its_cache_control() -> None:
    """E-4."""
    mark = {"cache_control": Raw(b'{"type":"ephemeral"}')}
    items = [
        MessageParam(role="user", content="a"),
        MessageParam(role="system", content=[InputText(text="S", extra=mark)]),
    ]
    body, _ = ask(Request(model="m", input=list(items)), MessagesWire())
    marked = {"type": "text", "text": "<system>\nS\n</system>", "cache_control": {"type": "ephemeral"}}
    assert body["messages"][0]["content"][1] == marked


def test_native_blocks_are_sent_unchanged() -> None:
    raw = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]}
    part = UnknownContent(
        kind="search_result",
        raw=Raw(b'{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}'),
    )
    assert sent(part) == ([raw], [])


def test_document_of_text_is_the_block_of_the_client() -> None:
    """E-4: with its cache mark. A server without documents gets the text."""
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "t"}
    mark = {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit","cache_control":{"type":"ephemeral"}}')}
    document = InputText(text="t\nx", extra={"messages:document": Raw(json.dumps(block).encode())})
    marked = InputText(text="t\nx", extra={**(document.extra or {}), **mark})
    assert sent(document) == ([block], [])
    assert sent(marked) == ([{**block, "cache_control": {"type": "ephemeral"}}], [])
    assert sent(document, wire=MessagesWire(documents=False)) == ([{"type": "text", "text": "t\nx"}], [])


def test_assistant_content_is_always_text_F4() -> None:
    chance = LogProb(token="x", logprob=-1, bytes=[], top_logprobs=[])
    parts: list[ContentParam] = [
        OutputTextParam(text="x", logprobs=[chance]),
        Refusal(refusal="No."),
        InputImageParam(image_url="https://i/1"),
    ]
    items = [
        MessageParam(role="user", content="a"),
        MessageParam(role="assistant", content=list(parts)),
        MessageParam(role="user", content="b"),
    ]
    body, losses = ask(Request(model="m", input=list(items)))
    assert [block["text"] for block in body["messages"][1]["content"]] == ["x", "No.", "[image omitted: https://i/1]"]
    assert [loss.path for loss in losses] == [
        "input[1].content[0].logprobs",
        "input[1].content[1]",
        "input[1].content[2]",
    ]


def test_cited_text_keeps_its_cache_control() -> None:
    """E-4."""
    extra = {"cited_text": Raw(b'"c"'), "encrypted_index": Raw(b'"e"')}
    page = UrlCitationParam(start_index=0, end_index=1, url="https://c", title="t", extra=extra)
    text = OutputTextParam(text="x", annotations=[page], extra={"cache_control": Raw(b'{"type":"ephemeral"}')})
    items = [
        MessageParam(role="user", content="a"),
        MessageParam(role="assistant", content=[text]),
        MessageParam(role="user", content="b"),
    ]
    body, losses = ask(Request(model="m", input=list(items)))
    block = body["messages"][1]["content"][0]
    assert (block["cache_control"], block["citations"][0]["encrypted_index"]) == ({"type": "ephemeral"}, "e")
    assert not list(losses)


@pytest.mark.parametrize(
    ("media_type", "start"),
    [
        ("image/jpeg", b"\xff\xd8\xff"),
        ("image/png", b"\x89PNG\r\n"),
        ("image/gif", b"GIF89a"),
        ("image/webp", b"RIFF....WEBP"),
    ],
)
@pytest.mark.parametrize("has_start", [True, False])
def test_image_types_of_the_api_are_sent(media_type: str, start: bytes, has_start: bool) -> None:
    """By the first bytes, and by the type that the client names."""
    data = base64.b64encode((start if has_start else b"") + b"......").decode()
    named = "image/heic" if has_start else media_type
    source = {"type": "base64", "media_type": media_type, "data": data}
    assert sent(InputImageParam(image_url=f"data:{named};base64,{data}")) == ([{"type": "image", "source": source}], [])
