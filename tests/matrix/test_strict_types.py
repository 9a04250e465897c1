"""`strict_types`: wrong values are found in answers and in every event."""

from __future__ import annotations

import json
from typing import Any

from tests.matrix.strict_types import find_type_errors

LINE: dict[str, Any] = {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "eval_count": 2}


def test_answer_with_a_value_of_another_type_is_found() -> None:
    """The SDK itself converts the text to a number."""
    assert find_type_errors("ollama", json.dumps(LINE).encode(), is_stream=False) == []
    wrong = json.dumps({**LINE, "eval_count": "2"}).encode()
    assert find_type_errors("ollama", wrong, is_stream=False) == [
        "eval_count: Input should be a valid integer, got '2'"
    ]


def test_every_event_is_validated_with_its_own_type() -> None:
    stream = b'event: ping\ndata: {"type":"ping"}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop"}\n\n'
    assert find_type_errors("messages", stream, is_stream=True) == [
        "index: Field required, got {'type': 'content_block_stop'}"
    ]


def test_end_of_a_chat_stream_is_no_event() -> None:
    assert find_type_errors("chat", b"data: [DONE]\n\n", is_stream=True) == []
