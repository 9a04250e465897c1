"""HTTP-2: nulls that the specification does not allow, although the types of the protocol accept them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.check.published_form import EXPECTED_VALUES, decode_event, decode_response
from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response

BODY: dict[str, Any] = json.loads(codec.encode(make_initial_response(Request(), id="resp_1", created_at=1)))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_complete_response_is_decoded() -> None:
    assert decode_response(encoded(BODY)).id == "resp_1"
    created = {"type": "response.created", "sequence_number": 0, "response": BODY}
    assert decode_event(encoded(created)).sequence_number == 0
    assert decode_event(encoded({"type": "acme:hint", "sequence_number": 3})).sequence_number == 3


@pytest.mark.parametrize("name", EXPECTED_VALUES)
def test_null_is_an_error_with_its_path(name: str) -> None:
    body = {**BODY, name: None}
    with pytest.raises(InvalidValue, match=f"^{name}: expected .*, got null$") as whole:
        decode_response(encoded(body))
    assert whole.value.param == name
    with pytest.raises(InvalidValue) as streamed:
        decode_event(encoded({"type": "response.created", "sequence_number": 0, "response": body}))
    assert streamed.value.param == f"response.{name}"
