"""`gateway/unknown_parts`: parts of unknown types are refused where they would have to be translated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import InvalidValue
from antiphon.gateway.unknown_parts import check_part_types

TEXT = {"type": "text", "text": "Hi"}
HOLOGRAM = {"type": "hologram"}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [HOLOGRAM]}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def assistant(*parts: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(parts)}


def check(dialect: ClientDialectName, body: dict[str, Any]) -> None:
    client, content = CLIENT_DIALECTS[dialect], msgspec.json.encode({"model": "m", **body})
    check_part_types(client.request_to_hub(content)[0], client, content)


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        ("responses", {"input": [user({"type": "input_text", "text": "Hi"}, HOLOGRAM)]}, "input[0].content[1].type"),
        ("responses", {"input": [HOLOGRAM, user(HOLOGRAM)]}, "input[1].content[0].type"),
        ("chat", {"messages": [user(TEXT), user(HOLOGRAM)]}, "messages[1].content[0].type"),
        ("chat", {"messages": [assistant(HOLOGRAM), user(HOLOGRAM)]}, "messages[1].content[0].type"),
        ("chat", {"messages": [user({"type": "messages:x"})]}, "messages[0].content[0].type"),
        ("messages", {"max_tokens": 9, "system": [HOLOGRAM], "messages": [user(TEXT)]}, "system[0].type"),
        ("messages", {"max_tokens": 9, "messages": [user(RESULT)]}, "messages[0].content[0].content[0].type"),
        ("gemini", {"contents": [{"parts": [{"text": "Hi"}, {"hologram": {}}]}]}, "contents[0].parts[1].hologram"),
    ],
)
def test_part_of_unknown_type_is_refused_with_its_path(dialect: ClientDialectName, body: Any, param: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        check(dialect, body)
    assert refusal.value.param == param
    assert refusal.value.message.startswith(f"{param}: expected one of '")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("responses", {"input": "Hi"}),
        ("responses", {"input": [{"role": "user", "content": "Hi"}, assistant(HOLOGRAM)]}),
        ("responses", {"input": [user({"type": "computer_screenshot"}, {"type": "gemini:toolResponse"})]}),
        ("chat", {"messages": [user({"type": "audio_url"})]}),
        ("messages", {"max_tokens": 9, "messages": [user({"type": "container_upload", "file_id": "f"})]}),
        ("gemini", {"contents": [{"parts": [{"toolResponse": {"id": "c"}}]}]}),
        ("ollama", {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
)
def test_other_parts_are_accepted(dialect: ClientDialectName, body: Any) -> None:
    """Parts that the client's API has, parts that the gateway gave the client, and parts of the model."""
    check(dialect, body)


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"messages":["x", {"content": ["x"]}]}'])
def test_part_that_the_body_lacks_is_refused_with_the_field_of_the_input(body: bytes) -> None:
    client = CLIENT_DIALECTS["chat"]
    request, _ = client.request_to_hub(msgspec.json.encode({"messages": [user(HOLOGRAM)]}))
    with pytest.raises(InvalidValue) as refusal:
        check_part_types(request, client, body)
    assert refusal.value.param == "messages"
