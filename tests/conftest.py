"""Settings for all tests: the plugins of this folder, one Hypothesis profile, a data folder and certificates for tests.

The Hypothesis profile has no deadlines and uses the same examples in every run. `ANTIPHON_RANDOM=1` generates new
examples, and `ANTIPHON_EXAMPLES=1000` sets their number.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import coverage
import pytest
import trustme
from hypothesis import HealthCheck, settings

from antiphon.upstream.embedded import EmbeddedModel

pytest_plugins = [
    "antiphon.testing.fixtures",
    "tests.selection",
    "tests.io_guard",
    "tests.time_limit",
    "tests.quick_stop",
]

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=int(os.environ.get("ANTIPHON_EXAMPLES", "30")),
    derandomize=not os.environ.get("ANTIPHON_RANDOM"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("antiphon")
# A shell ignores SIGINT in the processes that it starts in the background, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test, and no process that a test starts, writes into the data folder of the user."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True, scope="session")
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A new HTTP client reads all trusted certificates, which takes longer than a hundred requests to the loopback."""
    path = tmp_path_factory.mktemp("trusted") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    os.environ["SSL_CERT_FILE"] = str(path)


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[EmbeddedModel]:
    """The server of llama.cpp with the embedded model."""
    model = EmbeddedModel(os.environ)
    model.start()
    yield model
    model.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and modules stay in memory, so a search for garbage among them is in vain; it takes half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Saves the coverage of a pytest-xdist worker, which must exit within ten seconds; a busy machine needs longer."""
    measured = coverage.Coverage.current()
    if measured is not None and hasattr(session.config, "workerinput"):
        measured.stop()
        measured.save()
