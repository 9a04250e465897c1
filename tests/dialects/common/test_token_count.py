"""`dialects/common/token_count`: only fields of the prompt are counted."""

import pytest

from antiphon.dialects import messages, responses
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS


@pytest.mark.parametrize(
    ("dialect", "body", "counted"),
    [
        ("messages", b'{"model":"m","max_tokens":5,"messages":[]}', b'{"model":"m","messages":[]}'),
        ("responses", b'{"model":"m","store":false,"input":"Hi"}', b'{"model":"m","input":"Hi"}'),
    ],
)
def test_count_request_has_only_fields_of_the_prompt(dialect: ServerDialectName, body: bytes, counted: bytes) -> None:
    count_request = SERVER_DIALECTS[dialect].count_request
    assert count_request in (messages.count_request, responses.count_request)
    assert count_request(body, "m") == counted
