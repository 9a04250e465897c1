"""Law (b) of every dialect and every recording: any split of the bytes gives equal events.

It is a separate module because it spends all its time in one small module, `sse`, which has its own tests: coverage
would only slow it down."""

from __future__ import annotations

import pytest
from tests.dialects.test_laws import Recording, every_recording, frames_of

pytestmark = [pytest.mark.slow, pytest.mark.without_coverage]


@every_recording
def test_recording_gives_the_same_frames_for_every_split(recording: Recording) -> None:
    """Law (b): in two at every byte, and byte by byte. Events depend on frames alone, so equal frames are enough."""
    dialect, data = recording.dialect, recording.path.read_bytes()
    whole = frames_of(dialect, data)
    for place in range(len(data)):
        assert frames_of(dialect, data[:place], data[place:]) == whole
    assert frames_of(dialect, *(data[at : at + 1] for at in range(len(data)))) == whole
