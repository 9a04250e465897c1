"""Arguments of calls as JSON objects."""

from __future__ import annotations

import pytest

from antiphon.dialects.common.call_arguments import arguments_as_object, arguments_or_wrapper, wrap_arguments
from antiphon.protocol.losses import Losses


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"a": 1}', b'{"a": 1}'), (' {"a": 1}\n', b'{"a": 1}'), ("", b"{}"), (" \n", b"{}")],
)
def test_object_is_sent_as_it_is_and_empty_arguments_are_an_empty_object(arguments: str, expected: bytes) -> None:
    losses = Losses()
    assert bytes(arguments_as_object(arguments) or b"") == expected
    assert bytes(arguments_or_wrapper(arguments, "input[0]", losses)) == expected
    assert not losses


@pytest.mark.parametrize("arguments", ["[1]", '"a"', "null", '{"a":', "rm -rf", '{"a":"\\ud800"}'])
def test_other_text_is_wrapped_and_reported(arguments: str) -> None:
    losses = Losses()
    assert arguments_as_object(arguments) is None
    assert arguments_or_wrapper(arguments, "input[0]", losses) == wrap_arguments(arguments)
    assert [loss.path for loss in losses] == ["input[0].arguments"]


def test_wrapped_text_is_a_string_member() -> None:
    assert bytes(wrap_arguments('say "hi"')) == b'{"arguments":"say \\"hi\\""}'
