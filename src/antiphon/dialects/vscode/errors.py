"""Translates errors for an editor, and adds the editor's own name for this kind of error."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.dialects.vscode.wire import ErrorOut
from antiphon.errors import ApiError


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Return the status and the body."""
    return error.status, msgspec.json.encode({"error": error_out(error)})


def error_out(error: ApiError) -> ErrorOut:
    """Return the error object for a body or a line."""
    return ErrorOut(
        name=NAMES.get(error.status, UNSET),
        type=error.type,
        code=error.code,
        message=error.message,
        param=error.param,
    )


NAMES: Final[dict[int, str]] = {
    401: "NoPermissions",
    402: "Blocked",
    403: "NoPermissions",
    404: "NotFound",
    429: "Blocked",
}
