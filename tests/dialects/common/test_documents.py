"""Documents of text go as text to servers of other dialects, and pages of videos are no documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.common.documents import is_video_page, text_of_document
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.protocol.content import InputFileParam, InputText
from antiphon.protocol.losses import Losses

PAGE = "https://www.youtube.com/watch?v=a"
TEXT = {"type": "text", "text": "Rain."}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}


def sent(client: Any, body: dict[str, Any], server: Any) -> tuple[str, list[str]]:
    request, losses = CLIENT_DIALECTS[client].request_to_hub(json.dumps(body).encode())
    dialect = SERVER_DIALECTS[server]
    sent_body, more_losses = dialect.request_from_hub(request, dialect.wire_type())
    return sent_body.decode(), [loss.path for loss in [*losses, *more_losses]]


def from_messages(block: dict[str, Any], server: Any) -> tuple[str, list[str]]:
    return sent("messages", {"model": "m", "messages": [{"role": "user", "content": [block]}]}, server)


@pytest.mark.parametrize("server", ["chat", "responses", "gemini", "ollama"])
@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {"type": "search_result", "source": "https://a.b", "title": "Weather", "content": [TEXT, TEXT]},
            "Weather\\nhttps://a.b\\nRain.\\nRain.",
        ),
        ({"type": "document", "source": {"type": "content", "content": [TEXT]}, "title": "Weather"}, "Weather\\nRain."),
        ({"type": "document", "source": {"type": "content", "content": "Rain."}}, '"Rain."'),
    ],
)
def test_documents_of_text_go_as_text(block: dict[str, Any], text: str, server: str) -> None:
    body, losses = from_messages(block, server)
    assert text in body
    assert losses == []


@pytest.mark.parametrize("server", ["chat", "responses", "gemini", "ollama"])
@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "content", "content": [IMAGE]}},
        {"type": "document", "source": {"type": "content", "content": []}},
        {"type": "document", "source": {"type": "newest"}},
        {"type": "search_result", "source": "https://a.b", "title": "Weather", "content": 5},
    ],
)
def test_other_documents_are_a_loss(block: dict[str, Any], server: str) -> None:
    """F-4."""
    assert "input[0].content[0]" in from_messages(block, server)[1]


@pytest.mark.parametrize("server", ["chat", "responses", "gemini", "ollama"])
def test_text_of_a_document_with_images_is_sent(server: str) -> None:
    """Only the image and what is no block are losses."""
    content = {"type": "content", "content": [TEXT, IMAGE, 5]}
    body, losses = from_messages({"type": "document", "source": content}, server)
    assert "Rain.\\n[image omitted]\\n[block omitted]" in body
    assert losses == ["input[0].content[0].source.content[1]", "input[0].content[0].source.content[2]"]


@pytest.mark.parametrize("server", ["chat", "responses", "gemini", "ollama"])
@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize(
    "block",
    [
        {"type": "search_result", "source": "https://a.b", "title": "Weather", "content": [TEXT]},
        {"type": "document", "source": {"type": "content", "content": [TEXT]}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Rain."}},
        {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "UmFpbi4="}},
    ],
)
def test_request_for_citations_is_a_loss(block: dict[str, Any], is_enabled: bool, server: str) -> None:
    _, losses = from_messages({**block, "citations": {"enabled": is_enabled}}, server)
    assert losses == (["input[0].content[0].citations"] if is_enabled else [])


def test_text_file_goes_as_text_to_ollama_servers() -> None:
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Rain."}, "title": "W"}
    body, losses = from_messages(block, "ollama")
    assert '"W\\nRain."' in body
    assert losses == []


@pytest.mark.parametrize("data", ["data:text/plain;base64,!", "data:text/plain;base64,/w==", "data:text/plain,x"])
def test_text_file_that_cannot_be_decoded_has_no_text(data: str) -> None:
    losses = Losses()
    assert text_of_document(InputFileParam(file_data=data), "", losses) is None
    assert text_of_document(InputText(text="Hi"), "", losses) is None
    assert not losses


@pytest.mark.parametrize(
    ("url", "is_page"),
    [(PAGE, True), ("https://youtu.be/a", True), ("https://m.youtube.com/a", True), ("https://a.b/youtube.com", False)],
)
def test_pages_of_videos_are_recognised(url: str, is_page: bool) -> None:
    assert is_video_page(url) is is_page


def test_page_of_a_video_is_not_sent_as_a_document() -> None:
    file = {"type": "input_file", "file_url": PAGE}
    asked = {"model": "m", "input": [{"role": "user", "content": [file]}]}
    body, losses = sent("responses", asked, "messages")
    assert (f"[file omitted: {PAGE}]" in body, "document" in body, losses) == (True, False, ["input[0].content[0]"])
    gemini = {"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": PAGE}}]}]}
    body, losses = sent("gemini", gemini, "messages")
    assert (f"[video omitted: {PAGE}]" in body, losses) == (True, ["input[0].content[0]"])


@pytest.mark.parametrize("server", SERVER_DIALECTS)
def test_limit_of_tool_calls_is_sent_or_a_loss(server: str) -> None:
    """REQ-6."""
    body, losses = sent("responses", {"model": "m", "input": "Hi", "max_tool_calls": 2}, server)
    assert ("max_tool_calls" in body) == (server == "responses")
    assert losses == ([] if server == "responses" else ["max_tool_calls"])
