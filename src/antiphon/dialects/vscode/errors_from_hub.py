"""Errors as an editor can show them: ours, and beside it the word that the editor itself has for errors of the kind."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.dialects.vscode.response_lines import ErrorOut
from antiphon.errors import ApiError


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Status and body."""
    return error.status, msgspec.json.encode({"error": error_out(error)})


def error_out(error: ApiError) -> ErrorOut:
    """An error as it stands in a body and in a line."""
    return ErrorOut(
        name=NAMES.get(error.status, UNSET),
        type=error.type,
        code=error.code,
        message=error.message,
        param=error.param,
    )


NAMES: Final[dict[int, str]] = {401: "NoPermissions", 402: "Blocked", 403: "NoPermissions", 404: "NotFound", 429: "Blocked"}
