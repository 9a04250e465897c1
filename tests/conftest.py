"""One Hypothesis profile for all tests: no deadlines (no machine is alone), and the same examples every time.

`ANTIPHON_RANDOM=1 make test` looks for new ones, `ANTIPHON_EXAMPLES=1000` for more of them. No test, nor any process that one
starts, keeps anything in the user's own data folder.
"""

from __future__ import annotations

import os

import pytest
import trustme
from hypothesis import HealthCheck, settings

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=int(os.environ.get("ANTIPHON_EXAMPLES", "30")),
    derandomize=not os.environ.get("ANTIPHON_RANDOM"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("antiphon")


@pytest.fixture(autouse=True, scope="session")
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True, scope="session")
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """HTTP clients read all that they trust whenever one is made, which takes longer than a hundred requests on the loopback."""
    path = tmp_path_factory.mktemp("trusted") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    os.environ["SSL_CERT_FILE"] = str(path)
