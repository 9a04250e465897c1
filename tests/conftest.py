"""One Hypothesis profile for all tests: no deadlines (no machine is alone), and the same examples every time.

`ANTIPHON_RANDOM=1 make test` looks for new ones, `ANTIPHON_EXAMPLES=1000` for more of them. No test, nor any process that one
starts, keeps anything in the user's own data folder.

`--part within` are the tests that together reach every branch of the packages that need full coverage, `--part through` the others, most
of which go through a whole gateway: measuring coverage there doubles their time and finds nothing new. Without it all are run.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import coverage
import pytest
import trustme
from hypothesis import HealthCheck, settings

pytest_plugins = ["antiphon.testing.fixtures"]
settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=int(os.environ.get("ANTIPHON_EXAMPLES", "30")),
    derandomize=not os.environ.get("ANTIPHON_RANDOM"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("antiphon")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell does this to what it starts behind it, and programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True, scope="session")
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """HTTP clients read all that they trust whenever one is made, which takes longer than a hundred requests on the loopback."""
    path = tmp_path_factory.mktemp("trusted") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    os.environ["SSL_CERT_FILE"] = str(path)


HERE = Path(__file__).resolve().parent
THROUGH = (
    "api",
    "clients",
    "faults",
    "faults_outside",
    "fuzz",
    "http",
    "integrations",
    "matrix",
    "ops",
    "peers",
    "producer",
    "soak",
    "testing",
    "upstream",
)
THROUGH_TOO = {"dialects/test_cuts.py", "tools/test_install.py"}
# Of those, the ones that reach what no other test does.
WITHIN = {
    f"api/test_{name}.py"
    for name in ("request_dialect", "compact", "conversations", "count_tokens", "reasoning", "state", "strict_losses")
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=("within", "through"), help="only this part of the tests")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    part = config.getoption("--part")
    if part is None or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    place = collection_path.resolve().relative_to(HERE)
    is_through = (place.parts[0] in THROUGH and place.as_posix() not in WITHIN) or place.as_posix() in THROUGH_TOO
    return True if is_through != (part == "through") else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Saves the coverage of a worker of pytest-xdist. A worker has ten seconds to exit, which is not enough on a busy machine."""
    measured = coverage.Coverage.current()
    if measured is not None and hasattr(session.config, "workerinput"):
        measured.stop()
        measured.save()
