"""`common/envelope`: sealed content is unsealed unchanged, and other text is not recognised as an envelope."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.envelope import (
    ENVELOPE_PREFIX,
    Envelope,
    has_more_than_text,
    seal_reasoning,
    unseal_reasoning,
)

MAKERS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
CONTENTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.lists(st.text()), max_size=4)


@given(MAKERS, CONTENTS)
def test_sealed_content_is_unsealed_unchanged(maker: str, content: dict[str, object]) -> None:
    """RSN-2: with its maker's name, in characters that survive any header, URL or form."""
    sealed = seal_reasoning(maker, content)
    assert sealed.isascii()
    assert unseal_reasoning(sealed) == Envelope(maker, content)


@given(st.text())
def test_text_of_a_server_is_no_envelope(text: str) -> None:
    """RSN-3."""
    assert unseal_reasoning(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"{ENVELOPE_PREFIX}lab.",
        f"{ENVELOPE_PREFIX}lab.e30=x=",
        f"{ENVELOPE_PREFIX}lab.{base64.urlsafe_b64encode(b'[1]').decode()}",
        f"{ENVELOPE_PREFIX}lab.{base64.urlsafe_b64encode(b'{').decode()}",
        f"{ENVELOPE_PREFIX}lab.{base64.urlsafe_b64encode(b'[' * 5000).decode()}",
        f"{ENVELOPE_PREFIX}lab.abcde",
        f"{ENVELOPE_PREFIX}.e30=",
        f"{ENVELOPE_PREFIX}{'x' * 65}.e30=",
        f"{seal_reasoning('lab', {})}\n",
        f" {seal_reasoning('lab', {})}",
    ],
)
def test_changed_seal_is_no_envelope(text: str) -> None:
    """RSN-3: and no exception is raised."""
    assert unseal_reasoning(text) is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"thinking": "Hm.", "signature": "s"}, True),
        ({"redacted": "x"}, True),
        ({"reasoning_details": [{"type": "reasoning.summary"}]}, True),
        ({"thinking": "Hm.", "signature": ""}, False),
        ({"reasoning_content": "Hm."}, False),
        ({"on": "thought"}, False),
    ],
)
def test_seal_has_more_than_text_if_its_server_needs_more(content: dict[str, Any], expected: bool) -> None:
    assert has_more_than_text(seal_reasoning("lab", content)) is expected
    assert has_more_than_text("opaque")
