"""`dialects/responses/request_in`: a client's body is the hub request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.generate.conversations import requests

from antiphon.dialects.responses import request_to_hub
from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.request import Request

# Laws


@given(requests())
@settings(max_examples=40)
def test_client_body_is_decoded_unchanged(request: Request) -> None:
    """REQ-7"""
    body = codec.encode(request)
    read, losses = request_to_hub(body)
    assert codec.encode(read) == body
    assert list(losses) == []


def test_invalid_body_is_refused_with_its_path() -> None:
    """ERR-3"""
    with pytest.raises(InvalidValue, match="max_output_tokens"):
        request_to_hub(b'{"model":"m","max_output_tokens":3}')
