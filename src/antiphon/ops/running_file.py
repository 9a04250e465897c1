"""The file of a running gateway, by which `antiphon reload` finds it and learns what became of a reload.

Each gateway has its own file in the user's state folder, named after its process. Files of processes that have ended
are ignored, and removed at the next start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.gateway.runner_name import current_process, has_ended, make_runner_name


class ReloadResult(Struct, frozen=True, kw_only=True):
    """What became of the newest reload."""

    number: int = 0  # of reloads since the start
    problem: str = ""  # empty if the configuration is in use
    changes: list[str] = []
    restart_settings: list[str] = []  # settings that changed in the file and need a restart


class RunningGateway(Struct, frozen=True, kw_only=True):
    """A running gateway."""

    pid: int
    process: str  # the name of its process, which is not used again
    url: str
    config: str | None  # the configuration file
    reload: ReloadResult = ReloadResult()


class RunningFile:
    """The file of this process. A folder that cannot be written only disables `antiphon reload`."""

    def __init__(self, url: str, config: Path | None, environ: Mapping[str, str]) -> None:
        folder = state_folder(environ)
        self._file = folder / FOLDER / f"{os.getpid()}.json" if folder else None
        self._gateway = RunningGateway(
            pid=os.getpid(),
            process=make_runner_name(PROCESS_NAME, current_process()),
            url=url,
            config=None if config is None else str(config.absolute()),
        )

    def write(self, result: ReloadResult = ReloadResult()) -> None:  # noqa: B008
        """Writes the file as a whole, readable by its owner only."""
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new_file = self._file.with_suffix(".new")
            new_file.touch(mode=0o600)
            new_file.write_bytes(msgspec.json.encode(replace(self._gateway, reload=result)))
            new_file.replace(self._file)
        except OSError:
            return

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for the state of programs of this user; None without a home folder."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if Path(state).is_absolute():
        return Path(state, "antiphon")
    return Path(home, *STATE_FOLDER, "antiphon") if home else None


def find_running_gateways(environ: Mapping[str, str]) -> list[RunningGateway]:
    """The gateways of this user that run, by process id."""
    gateways = [read_running_file(file) for file in _files(environ)]
    own_process = current_process()
    return [gateway for gateway in gateways if gateway is not None and not has_ended(gateway.process, own_process)]


def remove_old_files(environ: Mapping[str, str]) -> None:
    """Removes the files of processes that have ended."""
    own_process = current_process()
    for file in _files(environ):
        gateway = read_running_file(file)
        if gateway is not None and has_ended(gateway.process, own_process):
            file.unlink(missing_ok=True)


def read_running_file(file: Path) -> RunningGateway | None:
    """The content of a file; None if it is gone, or is no such file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningGateway)
    except (OSError, msgspec.MsgspecError):
        return None


def _files(environ: Mapping[str, str]) -> list[Path]:
    folder = state_folder(environ)
    return [] if folder is None else sorted((folder / FOLDER).glob("*.json"))[:MAX_FILES]


PROCESS_NAME: Final = "gateway"
STATE_FOLDER: Final = (".local", "state")
FOLDER: Final = "running"
MAX_FILES: Final = 1000
