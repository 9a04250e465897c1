"""`common/refused_reasoning`: messages with which servers refuse returned reasoning, and similar messages that mean
something else."""

from __future__ import annotations

import pytest

from antiphon.dialects.common.refused_reasoning import refused_part
from antiphon.dialects.common.upstream_errors import upstream_error
from antiphon.errors import ApiError


def error_with(status: int, message: str, code: str | None = None) -> ApiError:
    return upstream_error(status, {}, code, message, None)


@pytest.mark.parametrize(
    "message",
    [
        "The encrypted content gAAA… could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
        "Item 'rs_0a' of type 'reasoning' was provided without its required following item.",
        "Item with id 'rs_0a' not found. Items are not persisted when `store` is set to false.",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.3.content.0.thinking.signature: Field required",
        "messages.1.content.2: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        "Corrupted thought signature.",
        "Unable to submit request because Thought signature is not valid.",
        "Invalid value: thought_signature could not be decoded",
        "'messages.2' : property 'reasoning_content' is unsupported",
        "messages[2].reasoning_details: extra inputs are not permitted",
        "Unexpected keyword: reasoning_content",
    ],
)
@pytest.mark.parametrize("status", [400, 404, 422])
def test_refusal_of_reasoning_is_recognised_by_its_message(status: int, message: str) -> None:
    """RSN-3."""
    assert refused_part(error_with(status, message)) == "reasoning"


def test_refusal_of_reasoning_is_recognised_by_its_code() -> None:
    """RSN-3."""
    assert refused_part(error_with(400, "no", "invalid_encrypted_content")) == "reasoning"


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("Encrypted content is not supported with this model.", "encrypted_reasoning"),
        ('"llama3.2" does not support thinking', "thinking"),
        ("'claude-3-5-haiku-20241022' does not support thinking.", "thinking"),
        ("`reasoning_effort` is not supported with this model", "thinking"),
        ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", "thinking"),
        ("Unrecognized request argument supplied: reasoning_effort", "thinking"),
        (
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter.',
            "system_messages",
        ),
        ("messages.2.role: Input should be 'user' or 'assistant'", "system_messages"),
        ("adaptive thinking is not supported on this model", "thinking.adaptive"),
        ("Only 'enabled' and 'disabled' are supported for thinking; 'adaptive' is not supported.", "thinking.adaptive"),
        (
            "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'",
            "thinking.adaptive",
        ),
        (
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to '
            "control thinking behavior.",
            "thinking.enabled",
        ),
        (
            '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not specified; use '
            '"thinking.type.enabled" with "budget_tokens" for extended thinking.',
            "thinking.disabled",
        ),
        (
            '"thinking.type.disabled" is not supported for this model. Use "thinking.type.between_tools" for the lowest thinking '
            'setting, or "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
            "thinking.disabled",
        ),
        ('"thinking.type.between_tools" is not supported for this model.', "thinking.between_tools"),
    ],
)
def test_refused_form_is_recognised_by_its_message(message: str, refused: str) -> None:
    """RSN-3."""
    assert refused_part(error_with(400, message)) == refused


def test_refused_effort_is_recognised_by_the_param() -> None:
    """RSN-3: servers that validate with pydantic name the field beside the message."""
    error = upstream_error(422, {}, None, "Extra inputs are not permitted", "reasoning_effort")
    assert refused_part(error) == "thinking"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "The `reasoning_content` in the thinking mode must be passed back to the API."),
        (400, "Function call is missing a thought_signature in functionCall parts."),
        (400, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."),
        (400, "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model."),
        (400, "`reasoning_effort` must be one of `low`, `medium`, or `high`"),
        (422, "temperature: Extra inputs are not permitted"),
        (400, "`temperature` may only be set to 1 when thinking is enabled."),
        (400, "Item with id 'msg_0a' not found."),
        (400, "maximum context length is 10 tokens; invalid signature in thinking"),
        (500, "Invalid `signature` in `thinking` block"),
        (500, "Encrypted content is not supported with this model."),
        (429, "Invalid `signature` in `thinking` block"),
        (401, "Invalid signature of the thinking block"),
    ],
)
def test_other_refusals_are_not_recognised(status: int, message: str) -> None:
    """RSN-3: omitting more does not help if something is missing, and the server's own failures are not the
    client's."""
    assert refused_part(error_with(status, message)) is None
