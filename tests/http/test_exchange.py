"""`http/exchange`: HTTP-1, and the limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.errors import ApiError, ClientDisconnected
from antiphon.http.exchange import check_body_headers, read_body

pytestmark = pytest.mark.without_coverage


def head(**headers: str) -> dict[str, Any]:
    return {"headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]}


def refusal(**headers: str) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        check_body_headers(head(**headers), 100)
    return caught.value.status, caught.value.code


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json; v=1",
    ],
)
def test_json_content_types_are_accepted(kind: str) -> None:
    check_body_headers(head(content_type=kind, content_length="100"), 100)


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset=utf-16"],
)
def test_any_other_content_type_is_415(kind: str) -> None:
    """HTTP-1."""
    assert refusal(content_type=kind) == (415, "unsupported_media_type")


def test_missing_content_type_is_415() -> None:
    """HTTP-1."""
    assert refusal() == (415, "unsupported_media_type")


def test_content_encoding_is_415() -> None:
    assert refusal(content_type="application/json", content_encoding="gzip") == (415, "unsupported_media_type")


def test_content_length_over_the_limit_is_413_before_reading() -> None:
    assert refusal(content_type="application/json", content_length="101") == (413, "request_too_large")
    assert refusal(content_type="application/json", content_length="9" * 30) == (413, "request_too_large")


def body_of(*messages: dict[str, Any], limit: int = 10) -> bytes:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    return asyncio.run(read_body(receive, limit))


def part(data: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_body_is_joined_from_any_number_of_pieces() -> None:
    assert body_of(part(b"0123456789")) == b"0123456789"
    assert body_of(part(b"01234", True), part(b"", True), part(b"56789")) == b"0123456789"
    assert body_of({"type": "http.request"}) == b""


def test_body_over_the_limit_is_413_at_once() -> None:
    for messages in ([part(b"x" * 11)], [part(b"x" * 8, True), part(b"x" * 8, True), part(b"never asked for")]):
        with pytest.raises(ApiError) as caught:
            body_of(*messages)
        assert (caught.value.status, caught.value.code) == (413, "request_too_large")


def test_disconnect_during_the_body_raises_client_disconnected() -> None:
    with pytest.raises(ClientDisconnected):
        body_of(part(b"0", True), {"type": "http.disconnect"})
