"""Request fields that the writers of several dialects treat alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from antiphon.dialects.common.request_fields import (
    LOGPROBS,
    SupportedFields,
    append_members,
    report_unsupported_fields,
    requested_format,
    schema_rule,
)
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECT_NAMES, SERVER_DIALECTS
from antiphon.errors import UnsupportedParameter
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    TextFormat,
    TextParam,
)


def test_supported_field_is_sent_and_others_are_losses_REQ5_REQ6() -> None:
    losses = Losses()
    if_supported = SupportedFields(("temperature",), losses)
    assert if_supported("temperature", 0.5) == 0.5
    assert if_supported("topP", 0.5, "top_p") is UNSET
    assert if_supported("seed", 1) is UNSET
    assert [loss.path for loss in losses] == ["top_p", "seed"]


@pytest.mark.parametrize("value", [None, UNSET])
def test_absent_field_is_neither_sent_nor_lost(value: Any) -> None:
    losses = Losses()
    assert SupportedFields((), losses)("seed", value) is UNSET
    assert not losses


@pytest.mark.parametrize("text", [UNSET, TextParam(), TextParam(format=TextFormat())])
def test_plain_text_is_no_requested_format(text: Any) -> None:
    assert requested_format(Request(input="hi", text=text), Losses()) is None


@pytest.mark.parametrize("format", [JsonObjectFormat(), JsonSchemaFormatParam(name="a", schema={})])
def test_requested_format_is_the_json_format_REQ1(format: Any) -> None:
    assert requested_format(Request(input="hi", text=TextParam(format=format)), Losses()) == format


def test_unknown_fields_of_the_format_are_losses() -> None:
    losses = Losses()
    requested_format(Request(input="hi", text=TextParam(format=JsonObjectFormat(extra={"x": Raw(b"1")}))), losses)
    assert [loss.path for loss in losses] == ["text.format.x"]


def test_schema_rule_contains_the_schema() -> None:
    assert schema_rule({"type": "object"}).endswith('\n{"type":"object"}')


def test_fields_without_an_equivalent_are_losses_REQ6() -> None:
    losses = Losses()
    request = Request(
        input="hi",
        user="u",
        metadata={},
        include=[LOGPROBS, "reasoning.encrypted_content"],
        reasoning=ReasoningConfigParam(extra={"x": Raw(b"1")}),
        text=TextParam(extra={"y": Raw(b"1")}),
    )
    report_unsupported_fields(request, ("user", "metadata", "service_tier"), (LOGPROBS,), losses)
    assert [loss.path for loss in losses] == ["user", "reasoning.x", "text.y", "include[1]"]


def test_members_are_appended_to_an_encoded_object() -> None:
    assert append_members(b'{"a":1}', {"b": Raw(b"2")}) == b'{"a":1,"b":2}'
    assert append_members(b'{"a":1}', {}) == b'{"a":1}'


@pytest.mark.parametrize(
    ("dialect", "field", "path"),
    [("chat", "chat:n", "n"), ("gemini", "gemini:candidateCount", "generationConfig.candidateCount")],
)
@pytest.mark.parametrize("server", SERVER_DIALECT_NAMES)
def test_several_answers_are_requested_only_within_a_dialect(
    dialect: str, field: str, path: str, server: ServerDialectName
) -> None:
    """REQ-6: leaving the field out would change the meaning."""
    request = Request(model="m", input="hi", extra={field: Raw(b"2")})
    send = SERVER_DIALECTS[server].request_from_hub
    wire = SERVER_DIALECTS[server].wire_type()
    if server == dialect:
        body, losses = send(request, wire)
        sent = json.loads(body)
        assert (sent.get("n") or sent["generationConfig"]["candidateCount"], list(losses)) == (2, [])
    else:
        with pytest.raises(UnsupportedParameter, match="expected 1, got 2") as caught:
            send(request, wire)
        assert caught.value.param == path
