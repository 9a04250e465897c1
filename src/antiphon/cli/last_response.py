"""The newest response of `antiphon ask` and `antiphon chat`, which `--continue` continues: a small file of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.cli.exits import InvalidUsage
from antiphon.ops.running_file import state_folder


class LastResponse(Struct, frozen=True):
    """A stored response, the gateway that stores it, and the model that answered."""

    url: str
    id: str
    model: str


def state_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file in the user's state folder; None without a home folder."""
    folder = state_folder(environ)
    return folder / "last-response.json" if folder else None


def save_last_response(response: LastResponse, environ: Mapping[str, str]) -> None:
    """Write the file, readable by its owner only. A folder that cannot be written only disables `--continue`."""
    file = state_file(environ)
    if file is None:
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new_file = file.with_suffix(f".{os.getpid()}")
        new_file.touch(mode=0o600)
        new_file.write_bytes(msgspec.json.encode(response))
        new_file.replace(file)
    except OSError:
        return


def load_last_response(url: str, environ: Mapping[str, str]) -> LastResponse:
    """Return the newest response that this gateway stores. Without one, raise `InvalidUsage`."""
    file = state_file(environ)
    try:
        response = msgspec.json.decode(file.read_bytes(), type=LastResponse) if file else None
    except (OSError, msgspec.MsgspecError):
        response = None
    if response is None or response.url != url:
        raise InvalidUsage(f"nothing to continue: no stored answer of the gateway at {url}; start without --continue")
    return response
