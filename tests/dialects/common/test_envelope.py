"""`common/envelope`: what a maker sealed comes back to the letter, and nothing else is taken for an envelope."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.envelope import MARK, Envelope, seal, unseal

MAKERS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
CONTENTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.lists(st.text()), max_size=4)


@given(MAKERS, CONTENTS)
def test_what_is_sealed_comes_back_to_the_letter(maker: str, content: dict[str, object]) -> None:
    """RSN-2: with its maker's name, in letters that survive any header, address or form."""
    sealed = seal(maker, content)
    assert sealed.isascii()
    assert unseal(sealed) == Envelope(maker, content)


@given(st.text())
def test_what_a_server_gave_without_us_is_no_envelope(text: str) -> None:
    """RSN-3."""
    assert unseal(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"{MARK}lab.",
        f"{MARK}lab.e30=x=",
        f"{MARK}lab.{base64.urlsafe_b64encode(b'[1]').decode()}",
        f"{MARK}lab.{base64.urlsafe_b64encode(b'{').decode()}",
        f"{MARK}lab.{base64.urlsafe_b64encode(b'[' * 5000).decode()}",
        f"{MARK}lab.abcde",
        f"{MARK}.e30=",
        f"{MARK}{'x' * 65}.e30=",
        f"{seal('lab', {})}\n",
        f" {seal('lab', {})}",
    ],
)
def test_what_was_changed_on_the_way_is_no_envelope(text: str) -> None:
    """RSN-3: and nothing is raised for it."""
    assert unseal(text) is None
