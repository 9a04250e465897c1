"""Reloads the configuration of a running gateway in a thread: at SIGHUP, which `antiphon reload` sends too, and with
`[server] watch` when a file changes.

A configuration is used as a whole or not at all. Turns under way end with the one they began with.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from antiphon.config import Config, check_config, describe_changes, keep_restart_settings
from antiphon.errors import AntiphonError, ConfigError
from antiphon.ops.running_file import ReloadResult, RunningFile, remove_old_files
from antiphon.profiles.loading import is_profile_path

LOG: Final = logging.getLogger("antiphon.ops")
ApplyConfig = Callable[[Config], None]  # raises an `AntiphonError` if the configuration cannot be used
FileStamps = dict[Path, tuple[int, int, int] | None]  # None: there is no such file


class ConfigSource(Protocol):
    """Where the configuration of a gateway comes from."""

    @property
    def file(self) -> Path | None:
        """The configuration file; None without one."""
        ...

    def load(self) -> Config:
        """Loads and checks the configuration as at the start; raises a `ConfigError`."""
        ...


class ConfigReloader:
    """Reloads while the gateway serves. Use as a context manager."""

    def __init__(
        self,
        config: Config,
        source: ConfigSource,
        apply_config: ApplyConfig,
        url: str,
        environ: Mapping[str, str],
        *,
        poll_interval: float | None = None,
    ) -> None:
        """Only tests set `poll_interval`."""
        self._config = config
        self._source = source
        self._apply_config = apply_config
        self._environ = environ
        self._poll_interval = poll_interval or POLL_INTERVAL
        self._count = 0
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: the end
        self._stamps: FileStamps = {}
        self._file = RunningFile(url, source.file, environ)
        self._thread = threading.Thread(target=self._run, name="antiphon-reload", daemon=True)

    def __enter__(self) -> Self:
        remove_old_files(self._environ)
        self._file.write()
        self._stamps = self._read_stamps()
        self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._requests.put(False)
        self._file.remove()

    def request(self) -> None:
        """Reloads soon. A signal handler may call this at any time."""
        self._requests.put(True)

    # In the thread

    def _run(self) -> None:
        changed_stamps: FileStamps | None = None  # of a change that may not be complete
        while True:
            try:
                is_requested = self._requests.get(timeout=self._poll_interval if self._config.server.watch else None)
            except queue.Empty:
                # A file is read once it was the same twice, since it may be written in several steps.
                earlier_stamps, changed_stamps = changed_stamps, self._changed_stamps()
                if changed_stamps is None or changed_stamps != earlier_stamps:
                    continue
                is_requested = True
            if not is_requested:
                return
            changed_stamps = None
            self._stamps = self._read_stamps()
            self._reload()

    def _reload(self) -> None:
        changes: list[str] = []
        restart_settings: list[str] = []
        problem = ""
        try:
            config, restart_settings = keep_restart_settings(self._config, self._source.load())
            check_config(config, self._environ)
            _check_children(self._config, config)
            changes = describe_changes(self._config, config)
            self._apply_config(config)
            self._config = config
            # It may use other profiles.
            self._stamps = {file: self._stamps.get(file, stamp) for file, stamp in self._read_stamps().items()}
        except AntiphonError as error:
            problem = str(error)
        self._log_result(problem, changes, restart_settings)
        self._count += 1
        self._file.write(
            ReloadResult(number=self._count, problem=problem, changes=changes, restart_settings=restart_settings)
        )

    def _log_result(self, problem: str, changes: list[str], restart_settings: list[str]) -> None:
        for line in problem.splitlines():
            LOG.error("the configuration was not reloaded; nothing changed", extra={"fields": {"why": line}})
        if not problem:
            LOG.info("the configuration was reloaded", extra={"fields": {"changes": "; ".join(changes) or "none"}})
            if restart_settings:
                fields = {"settings": ", ".join(restart_settings)}
                LOG.warning("changed settings need a restart of the gateway", extra={"fields": fields})

    def _changed_stamps(self) -> FileStamps | None:
        """The stamps of the files if one has changed; None while the configuration file does not exist, which is
        between two steps of some editors."""
        stamps = self._read_stamps()
        exists = self._source.file is not None and stamps[self._source.file] is not None
        return stamps if exists and stamps != self._stamps else None

    def _read_stamps(self) -> FileStamps:
        """The stamps of the configuration and of its profiles."""
        profiles = [upstream.profile for upstream in self._config.upstreams]
        files = [Path(profile) for profile in profiles if profile is not None and is_profile_path(profile)]
        if self._source.file is not None:
            files.append(self._source.file)
        return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _check_children(current: Config, new: Config) -> None:
    """Refuses the embedded model and agents that were not started with the gateway."""
    started_models = {(upstream.name, upstream.embedded) for upstream in current.upstreams}
    started_agents = {upstream.agent for upstream in current.upstreams}
    for upstream in new.upstreams:
        if upstream.embedded and (upstream.name, upstream.embedded) not in started_models:
            raise ConfigError(f"the upstream {upstream.name!r}: the embedded model needs a restart of the gateway")
        if upstream.agent not in started_agents and upstream.agent is not None:
            raise ConfigError(f"the upstream {upstream.name!r}: a new agent needs a restart of the gateway")


POLL_INTERVAL: Final = 0.2  # seconds between two looks at the files
