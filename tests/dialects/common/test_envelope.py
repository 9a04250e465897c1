"""`common/envelope`: what a maker sealed comes back to the letter, and nothing else is taken for an envelope."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.envelope import ENVELOPE_PREFIX, Envelope, seal_reasoning, unseal_reasoning

MAKERS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
CONTENTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.lists(st.text()), max_size=4)


@given(MAKERS, CONTENTS)
def test_what_is_sealed_comes_back_to_the_letter(maker: str, content: dict[str, object]) -> None:
    """RSN-2: with its maker's name, in letters that survive any header, address or form."""
    sealed = seal_reasoning(maker, content)
    assert sealed.isascii()
    assert unseal_reasoning(sealed) == Envelope(maker, content)


@given(st.text())
def test_what_a_server_gave_without_us_is_no_envelope(text: str) -> None:
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
def test_what_was_changed_on_the_way_is_no_envelope(text: str) -> None:
    """RSN-3: and nothing is raised for it."""
    assert unseal_reasoning(text) is None
