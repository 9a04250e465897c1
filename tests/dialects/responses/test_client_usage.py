"""`cache_write_tokens` for clients, whose SDK requires it."""

from __future__ import annotations

import pytest
from msgspec import UNSET, UnsetType

from antiphon.dialects.responses.stream_out import complete_usage
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage


@pytest.mark.parametrize(("given", "sent"), [(None, 0), (7, 7), (UNSET, UNSET)])
def test_only_an_unknown_count_becomes_zero(given: int | None | UnsetType, sent: int | UnsetType) -> None:
    """REQ-4: the usage of a Responses server stays as it is."""
    usage = Usage(
        input_tokens=9,
        output_tokens=1,
        total_tokens=10,
        input_tokens_details=InputTokensDetails(cached_tokens=2, cache_write_tokens=given),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )
    assert complete_usage(usage).input_tokens_details == InputTokensDetails(cached_tokens=2, cache_write_tokens=sent)
