"""Runs commands that call a gateway with an `AsyncClient`, and describes its errors for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from antiphon.cli.exits import CommandFailed
from antiphon.cli.gateway_address import gateway_key
from antiphon.cli.outcome import describe_error
from antiphon.cli.terminal import one_line
from antiphon.client import AsyncClient, Retries, Timeouts
from antiphon.client.asynchronous import with_transport
from antiphon.client.server import ConnectionFault
from antiphon.errors import ApiError
from antiphon.upstream.transport import Transport


def call_gateway(
    call: Callable[[AsyncClient], Coroutine[None, None, None]],
    url: str,
    environ: Mapping[str, str],
    transport: Transport | None = None,
) -> None:
    """Run `call` with a client of the gateway. An error raises `CommandFailed` with the URL and what to do."""
    key = gateway_key(environ)

    async def run() -> None:
        client = AsyncClient(f"{url}/v1", key, timeouts=TIMEOUTS, retries=Retries(times=0), environ=environ)
        if transport is not None:
            client = with_transport(client, transport)
        async with client:
            await call(client)

    try:
        asyncio.run(run())
    except ApiError as error:
        raise CommandFailed(
            describe_failure(error, url) + _retry_line(error) + request_id_line(error.request_id)
        ) from None


def describe_failure(error: ApiError, url: str) -> str:
    """Describe an error of the gateway, or of the connection to it."""
    if isinstance(error, ConnectionFault):
        return FAULTS.get(error.code, INVALID_HTTP).format(url=url)
    description = describe_error(error.type, error.code, error.message, error.param)
    return f"{description}\n{KEY_HINT}" if error.code == "invalid_api_key" else description


def request_id_line(request_id: str | None) -> str:
    """Return a line with the request id for the gateway's log (HTTP-8); empty if the answer has none."""
    return f"\nrequest id {one_line(request_id)}" if request_id else ""


def _retry_line(error: ApiError) -> str:
    return "" if error.retry_after is None else f"\nretry after {error.retry_after:g} s"


KEY_HINT: Final = "set the key of the gateway in the environment variable ANTIPHON_API_KEY"
# The gateway enforces and reports its own limits; these only end requests that would hang forever.
TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=900.0, idle=900.0, total=7200.0)
FAULTS: Final = {
    "upstream_unavailable": "no gateway answers at {url}; start one with `antiphon serve`",
    "upstream_timeout": "the gateway at {url} did not answer in time",
    "upstream_disconnected": "the gateway at {url} closed the connection before the end of its answer",
}
INVALID_HTTP: Final = "the gateway at {url} sent an invalid HTTP response"
