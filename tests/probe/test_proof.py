"""The requests that test a drafted profile."""

from __future__ import annotations

from antiphon.probe.proof import TURNS, make_proofs
from antiphon.profiles import load_profile, parse_profile


def test_proofs_are_all_turns_that_the_profile_can_send() -> None:
    """D-4: a turn that cannot be sent is left out, and the turns after it are sent."""
    profile = parse_profile(
        'about = "x"\nextends = "chat"\n[wire]\njson_output = "none"', "probed", find_parent=load_profile
    )
    proofs = make_proofs(profile, "m")
    left = [name for name in TURNS if name != "JSON schema output"]
    assert [proof.id for proof in proofs] == [f"proof.{name}" for name in left]
    assert [proof.streams for proof in proofs] == [name == "stream" for name in left]
