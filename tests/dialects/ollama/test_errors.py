"""`dialects/ollama/errors`: errors of servers, and for clients."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.ollama import error_from_hub, error_to_hub
from antiphon.errors import ClientFault, UpstreamFault


@pytest.mark.parametrize(
    ("status", "body", "type_", "code"),
    [
        (400, b'{"error":"\\"m\\" does not support thinking"}', ClientFault, "invalid_value"),
        (404, b'{"error":"model \'m\' not found"}', ClientFault, "model_not_found"),
        (404, b"404 page not found", UpstreamFault, "upstream_error"),
        (405, b"{}", UpstreamFault, "upstream_error"),
        (500, b'{"error":"llama runner process has terminated"}', UpstreamFault, "upstream_error"),
        (502, b'{"error":{"message":"bad gateway"}}', UpstreamFault, "upstream_error"),
        (503, b'{"error":"server busy, please try again"}', UpstreamFault, "overloaded"),
        (401, b'{"error":"unauthorized"}', UpstreamFault, "upstream_auth_failed"),
    ],
)
def test_error_of_a_server(status: int, body: bytes, type_: type, code: str) -> None:
    """ERR-4."""
    error = error_to_hub(status, {}, body)
    assert (type(error), error.code) == (type_, code)


def test_error_for_a_client_is_a_text() -> None:
    status, body = error_from_hub(ClientFault("model: unknown model 'x'", status=404))
    assert (status, json.loads(body)) == (404, {"error": "model: unknown model 'x'"})
