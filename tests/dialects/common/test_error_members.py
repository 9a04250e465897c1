"""`dialects/common/error_members`: clients of the server's dialect get all members of its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.common.error_members import MAX_ORIGINAL_BYTES, keep_error_members

TRANSLATION = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}


def merged(original: Any, translation: Any = TRANSLATION) -> Any:
    return json.loads(keep_error_members(json.dumps(original).encode(), json.dumps(translation).encode()))


def test_members_of_the_server_are_added() -> None:
    original = {"error": {"message": "m", "code": 400, "metadata": {"provider": "x", "n": [1, None]}}, "user_id": "u"}
    assert merged(original) == {
        "error": {**TRANSLATION["error"], "metadata": {"provider": "x", "n": [1, None]}},
        "user_id": "u",
    }


def test_details_of_both_are_kept_once() -> None:
    quota = {"@type": "QuotaFailure", "violations": [{"quotaMetric": "q"}]}
    retry = {"@type": "RetryInfo", "retryDelay": "7.5s"}
    info = {"@type": "ErrorInfo", "reason": "rate_limit_exceeded"}
    translation = {"error": {"details": [info, {"@type": "RetryInfo", "retryDelay": "8s"}]}}
    assert merged({"error": {"details": [quota, retry]}}, translation) == {"error": {"details": [quota, retry, info]}}
    assert merged({"error": {"details": ["a"]}}, translation)["error"]["details"][0] == "a"


@pytest.mark.parametrize("original", [[], "refused", None, {"error": "refused"}])
def test_other_forms_are_translated(original: Any) -> None:
    assert merged(original) == TRANSLATION


@pytest.mark.parametrize("original", [b"<html>", b"", b'{"a": "' + b"x" * MAX_ORIGINAL_BYTES + b'"}'])
def test_bodies_that_are_no_json_or_too_large_are_translated(original: bytes) -> None:
    assert keep_error_members(original, b'{"error":"a"}') == b'{"error":"a"}'


def test_keys_and_inner_addresses_are_removed() -> None:
    """ERR-5."""
    details = merged({"error": {"raw": ["sk-proj-abcdefghijklmnopqrstuvwxyz0123 at http://10.0.0.7:8000/v1"]}})
    assert "sk-proj" not in str(details)
    assert "10.0.0.7" not in str(details)
