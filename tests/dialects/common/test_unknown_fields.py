"""Unknown fields are reported as losses."""

from __future__ import annotations

from msgspec import Raw

from antiphon.dialects.common.unknown_fields import is_handled_by_gateway, report_unknown_fields
from antiphon.protocol.content import InputText
from antiphon.protocol.items import FunctionCallOutputParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningConfigParam, Request

ASKED = Request(reasoning=ReasoningConfigParam(effort="low"))


def test_non_empty_unknown_fields_are_losses_F4() -> None:
    losses = Losses()
    fields = {"a": Raw(b"1"), "b": Raw(b"null"), "c": Raw(b"[]"), "d": Raw(b"{}"), "e": Raw(b'""'), "f": Raw(b"false")}
    report_unknown_fields(InputText(text="hi", extra=fields), "input[0].content[0]", losses)
    assert [loss.path for loss in losses] == ["input[0].content[0].a", "input[0].content[0].f"]


def test_cache_control_loss_has_its_own_reason_E4() -> None:
    losses = Losses()
    report_unknown_fields(InputText(text="hi", extra={"cache_control": Raw(b'{"type":"ephemeral"}')}), "x", losses)
    assert [(loss.path, "cache" in loss.why) for loss in losses] == [("x.cache_control", True)]


def test_shape_without_unknown_fields_has_no_losses() -> None:
    losses = Losses()
    report_unknown_fields(InputText(text="hi"), "x", losses)
    assert not list(losses)


def test_field_that_repeats_the_output_is_no_loss() -> None:
    """F-4: a tool's object is kept for the one API with objects; its text is in the output."""
    losses = Losses()
    output = FunctionCallOutputParam(call_id="c", output='{"a":1}', extra={"gemini:resultObject": Raw(b'{"a":1}')})
    report_unknown_fields(output, "input[1]", losses)
    assert not list(losses)


def test_client_stream_options_are_handled_by_the_gateway() -> None:
    assert is_handled_by_gateway("chat:stream_options", Raw(b'{"include_usage":true}'), ASKED)
    assert not is_handled_by_gateway("chat:stream_options", Raw(b'{"include_usage":true,"chunk_size":1}'), ASKED)
    assert not is_handled_by_gateway("chat:stream_options", Raw(b"1"), ASKED)
    assert not is_handled_by_gateway("chat:seed", Raw(b"7"), ASKED)
    assert is_handled_by_gateway("messages:thinking", Raw(b'{"type":"adaptive"}'), ASKED)  # its effort is the hub's own
    assert is_handled_by_gateway("messages:thinking", Raw(b"null"), ASKED)
    assert not is_handled_by_gateway("messages:thinking", Raw(b'{"type":"adaptive","display":"omitted"}'), ASKED)


def test_effort_equal_to_the_hub_field_is_no_loss() -> None:
    """RSN-4: a different level than the hub's is a loss."""
    config = "messages:output_config"
    assert is_handled_by_gateway(config, Raw(b'{"effort":"low"}'), ASKED)
    assert not is_handled_by_gateway(config, Raw(b'{"effort":"max"}'), ASKED)
    assert not is_handled_by_gateway(config, Raw(b'{"effort":"low"}'), Request())
    assert not is_handled_by_gateway(config, Raw(b'{"effort":"low","task_budget":{}}'), ASKED)


def test_text_as_the_only_modality_is_no_loss() -> None:
    """F-4: every server answers with text."""
    assert is_handled_by_gateway("gemini:responseModalities", Raw(b'["TEXT"]'), ASKED)
    assert not is_handled_by_gateway("gemini:responseModalities", Raw(b'["TEXT","IMAGE"]'), ASKED)
