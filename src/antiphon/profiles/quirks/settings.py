"""Quirks about settings of a request: values that a server refuses though others take them."""

from __future__ import annotations

import hashlib
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class ShortenUserOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: How many characters the server allows.
    limit: Annotated[int, Meta(ge=16)] = 64


def shorten_user(request: Request, losses: Losses, options: ShortenUserOptions) -> Request:
    """A user's name that is too long is sent as its hash, which tells users apart as well. Coding agents send such names."""
    user = request.user
    if not user or len(user) <= options.limit:
        return request
    losses.add("user", f"a name of {len(user)} characters is sent as its hash", f"the server takes at most {options.limit}")
    return replace(request, user=hashlib.sha256(user.encode()).hexdigest()[: options.limit])
