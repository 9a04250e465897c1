"""`gateway/request_scope`: the data of one request for its log entry."""

from __future__ import annotations

from antiphon.gateway.request_scope import RequestLog


def test_duration_is_set_once() -> None:
    entry = RequestLog(request_id="req_1", method="POST", path="/v1/responses")
    entry.note_end()
    duration = entry.duration_ms
    assert duration is not None
    entry.note_end()
    assert entry.duration_ms == duration
