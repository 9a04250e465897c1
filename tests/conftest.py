"""One Hypothesis profile for all tests: no deadlines (this machine is not alone), the same examples every time in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=int(os.environ.get("ANTIPHON_EXAMPLES", "60")),
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("antiphon")
