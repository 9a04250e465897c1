"""Detection of the dialect and the model of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.cli.network import FakeAnswer
from tests.probe.probe_runs import make_target

from antiphon.config import Timeouts
from antiphon.probe.detect import NoServerFound, detect_dialect, first_model

URL = "http://127.0.0.1:9/v1"
JSON = {"content-type": "application/json"}
HELLO = msgspec.json.encode({"choices": [{"message": {"role": "assistant", "content": "Hello."}}]})


class StatusServer:
    """A transport that answers each request with the next status, the last status again and again."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.bodies: list[dict[str, Any]] = []

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> FakeAnswer:
        assert (method, url.startswith(URL), headers["content-type"], timeouts.total > 0) == (
            "POST",
            True,
            "application/json",
            True,
        )
        self.bodies.append(msgspec.json.decode(body))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        return FakeAnswer(HELLO if status == 200 else b'{"error":{"message":"no"}}', status=status, headers=JSON)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("statuses", [(200,), (401,), (403,), (400, 200), (422, 401), (400, 400, 400, 200)])
def test_detection_ends_with_the_first_answer_that_is_not_about_the_form(statuses: tuple[int, ...]) -> None:
    server = StatusServer(*statuses)
    target = make_target(URL, "chat")
    assert asyncio.run(detect_dialect([target], server)) == target
    assert len(server.bodies) == len(statuses)


def test_detection_tries_both_forms_of_text_with_each_limit() -> None:
    server = StatusServer(400)
    with pytest.raises(NoServerFound, match="does not answer in any supported dialect: chat 400: no"):
        asyncio.run(detect_dialect([make_target(URL, "chat")], server))
    assert [
        (type(body["messages"][0]["content"]), *sorted(body.keys() - {"model", "messages"})) for body in server.bodies
    ] == [
        (str, "max_tokens"),
        (str, "max_completion_tokens"),
        (str,),
        (list, "max_tokens"),
        (list, "max_completion_tokens"),
        (list,),
    ]


@pytest.mark.parametrize("status", [404, 405, 500])
def test_other_status_is_not_about_the_form(status: int) -> None:
    server = StatusServer(status, 200)
    with pytest.raises(NoServerFound, match=f"chat {status}: no"):
        asyncio.run(detect_dialect([make_target(URL, "chat")], server))
    assert len(server.bodies) == 1


def test_next_dialect_is_tried_after_a_dialect_that_is_not_there() -> None:
    targets = [make_target(URL, "messages"), make_target(URL, "chat")]
    assert asyncio.run(detect_dialect(targets, StatusServer(404, 200))) == targets[1]


class ModelList:
    """A transport that answers each request with the next list of models."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = list(bodies)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> FakeAnswer:
        assert (method, url.startswith(URL), headers["content-type"], body, timeouts.total > 0) == (
            "GET",
            True,
            "application/json",
            b"",
            True,
        )
        return FakeAnswer(self._bodies.pop(0), headers=JSON)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("bodies", "model"),
    [
        ([b'{"data":[{"id":"a"},{"id":"b"}]}'], "a"),
        ([b'{"models":[{"name":"models/g"}]}'], "g"),
        ([b"{}", b'{"data":[{"id":"b"}]}'], "b"),
        ([b"nonsense", b'{"data":[{"id":"b"}]}'], "b"),
    ],
)
def test_first_model_is_the_first_that_a_dialect_lists(bodies: list[bytes], model: str) -> None:
    targets = [make_target(URL, "messages"), make_target(URL, "chat")]
    assert asyncio.run(first_model(targets, ModelList(*bodies))) == model


def test_server_without_a_list_of_models_is_reported() -> None:
    with pytest.raises(NoServerFound, match="lists no models"):
        asyncio.run(first_model([make_target(URL, "chat")], ModelList(b"{}")))
