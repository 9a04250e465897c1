"""Requests for facts about a gateway, with a time limit: a server that never answers must not block a command."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.client import AsyncClient
from antiphon.client.asynchronous import request_json
from antiphon.client.server import ConnectionFault
from antiphon.errors import ApiError

ANSWER_LIMIT: Final = 10.0  # seconds; a gateway asks its upstreams for their models for up to 5


async def request_metadata(client: AsyncClient, method: str, path: str, body: bytes = b"") -> bytes:
    """Return the answer. Raise `ConnectionFault` after the limit, and for a server that does not have the path."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            return await request_json(client, method, path, body)
    except TimeoutError:
        raise ConnectionFault("the server did not answer in time", code=SILENT) from None
    except ApiError as error:
        if error.status != 404 or error.code == "model_not_found":
            raise
        raise ConnectionFault("the server does not have this path", code=OTHER_SERVER) from None


SILENT: Final = "silent_server"
OTHER_SERVER: Final = "other_server"
