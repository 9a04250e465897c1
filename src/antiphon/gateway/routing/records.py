"""The record of one attempt, for the log, metrics, usage and spans. All attempts of a turn have its request id."""

from __future__ import annotations

from msgspec import Struct


class AttemptRecord(Struct, kw_only=True):
    """One attempt to get an answer from one target."""

    number: int  # from 1
    upstream: str
    model: str  # the upstream's name for it
    key: int  # the number of the key of the upstream, from 0
    outcome: str = ""  # empty while it runs: `answered`, `abandoned`, or the kind of its failure
    error: str | None = None  # the code
    started_at: float = 0.0  # seconds of the monotonic clock
    duration_ms: float = 0.0
    input_tokens: int = 0  # of a failed attempt, as far as its server reported them
    output_tokens: int = 0
