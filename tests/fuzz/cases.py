"""How many cases there are, and which: each is a number, and the same number is always the same case.

`ANTIPHON_CASES` says how many in all (`make soak` wants a hundred thousand), `ANTIPHON_SEED` where their numbers begin. A case that
fails says its number: `ANTIPHON_SEED=<number> ANTIPHON_CASES=1` is that case alone, in every test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

import pytest

CASES: Final = int(os.environ.get("ANTIPHON_CASES", "6000"))
SEED: Final = int(os.environ.get("ANTIPHON_SEED", "0"))
BATCH: Final = 250


def batches(percent: int) -> pytest.MarkDecorator:
    """This share of all cases, in pieces that several workers can take."""
    last = SEED + max(1, CASES * percent // 100)
    ranges = [range(first, min(first + BATCH, last)) for first in range(SEED, last, BATCH)]
    return pytest.mark.parametrize("batch", ranges, ids=[f"{batch.start}-{batch.stop - 1}" for batch in ranges])


@contextmanager
def case(number: int) -> Iterator[Random]:
    """The random numbers of one case. A failure in the block is reported with the number of the case."""
    try:
        yield Random(number)
    except BaseException as failure:
        failure.add_note(f"in case {number}: ANTIPHON_SEED={number} ANTIPHON_CASES=1")
        raise
