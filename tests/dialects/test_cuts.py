"""Law (b) of every dialect and every recording: any cut of the bytes gives equal events.

It stands apart because it takes all its time in one small module, `sse`, which has its own tests: coverage would only slow it down.
"""

from __future__ import annotations

import pytest
from tests.dialects.test_laws import Recording, every_recording, frames_of

pytestmark = [pytest.mark.slow, pytest.mark.without_coverage]


@every_recording
def test_every_cut_of_the_bytes_gives_the_same_events(recording: Recording) -> None:
    """Law (b): in two at every place, and byte by byte. Events depend on frames alone, so equal frames are enough."""
    data = recording.path.read_bytes()
    whole = frames_of(data)
    for place in range(len(data)):
        assert frames_of(data[:place], data[place:]) == whole
    assert frames_of(*(data[at : at + 1] for at in range(len(data)))) == whole
