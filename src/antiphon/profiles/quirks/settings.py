"""Quirks for settings of a request whose values some servers refuse."""

from __future__ import annotations

import hashlib
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class ShortenUserOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: The maximum length that the server allows, in characters.
    limit: Annotated[int, Meta(ge=16)] = 64


def shorten_user(request: Request, losses: Losses, options: ShortenUserOptions) -> Request:
    """Send a user name that is too long as its hash, which still identifies the user. Coding agents send long names."""
    user = request.user
    if not user or len(user) <= options.limit:
        return request
    losses.add(
        "user",
        f"a user of {len(user)} characters",
        f"the server accepts at most {options.limit}; a hash is sent instead",
    )
    return replace(request, user=hashlib.sha256(user.encode()).hexdigest()[: options.limit])
