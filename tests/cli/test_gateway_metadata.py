"""Requests for facts about a gateway."""

from __future__ import annotations

import socket

import pytest

from antiphon.cli import gateway_metadata
from antiphon.cli.exits import CommandFailed
from antiphon.cli.run import served_models

pytestmark = pytest.mark.io


def test_server_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_metadata, "ANSWER_LIMIT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CommandFailed, match=f"the server at {url} did not answer within 10 s"):
            served_models(url, {})
