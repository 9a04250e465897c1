"""Runs commands that call a gateway with an `AsyncClient`, and describes its errors for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

from antiphon.cli.exits import CommandFailed
from antiphon.cli.gateway_address import gateway_key
from antiphon.cli.gateway_metadata import ANSWER_LIMIT, OTHER_SERVER, SILENT
from antiphon.cli.model_choice import list_models, suggest_model
from antiphon.cli.outcome import describe_error
from antiphon.cli.terminal import one_line
from antiphon.client import AsyncClient, Retries, Timeouts
from antiphon.client.asynchronous import with_transport
from antiphon.client.server import ConnectionFault
from antiphon.config import is_loopback
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
    except msgspec.DecodeError:
        raise CommandFailed(f"the server at {url} is not an Antiphon gateway: its answer has another form") from None


@asynccontextmanager
async def suggested_model(client: AsyncClient, model: str) -> AsyncIterator[None]:
    """Add the closest name that the gateway serves to the error of an unknown model."""
    try:
        yield
    except ApiError as error:
        if error.code == "model_not_found":
            with suppress(ApiError):  # the first error is of more use
                error.message += suggest_model(model, await list_models(client))
        raise


def describe_failure(error: ApiError, url: str) -> str:
    """Describe an error of the gateway, or of the connection to it, with what to do."""
    if isinstance(error, ConnectionFault):
        is_local = is_loopback(urlsplit(url).hostname or "")
        hint = "start one with `antiphon serve`" if is_local else "check the address of the gateway"
        return FAULTS.get(error.code, INVALID_HTTP).format(url=url, hint=hint)
    lines = [describe_error(error.type, error.code, error.message, error.param)]
    if error.upstream_name:
        lines.append(f'upstream "{one_line(error.upstream_name)}"; the gateway answered with HTTP {error.status}')
    if error.code in HINTS:
        lines.append(HINTS[error.code])
    return "\n".join(lines)


def request_id_line(request_id: str | None) -> str:
    """Return a line with the request id for the gateway's log (HTTP-8); empty if the answer has none."""
    return f"\nrequest id {one_line(request_id)}" if request_id else ""


def _retry_line(error: ApiError) -> str:
    return "" if error.retry_after is None else f"\nretry after {error.retry_after:g} s"


# The code of an error → what to do.
HINTS: Final = {
    "invalid_api_key": "set the key of the gateway in the environment variable ANTIPHON_API_KEY",
    "model_not_found": "`antiphon models` lists the models of the gateway",
    "upstream_unavailable": "start its server, or correct its base_url; test it with `antiphon config check --live`",
    "upstream_timeout": "`antiphon upstreams` shows the health of each upstream; [timeouts] are the limits",
    "upstream_auth_failed": "correct the key of the upstream; test it with `antiphon config check --live`",
    "upstream_credentials_exhausted": "correct the keys of the upstream; test them with `antiphon config check --live`",
}
# The gateway enforces and reports its own limits; these only end requests that would hang forever.
TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=900.0, idle=900.0, total=7200.0)
FAULTS: Final = {
    "upstream_unavailable": "no gateway answers at {url}; {hint}",
    "upstream_timeout": "the gateway at {url} did not answer in time",
    SILENT: f"the server at {{url}} did not answer within {ANSWER_LIMIT:g} s; is it an Antiphon gateway?",
    OTHER_SERVER: "the server at {url} is not an Antiphon gateway: it does not have the path of this request",
    "upstream_disconnected": "the gateway at {url} closed the connection before the end of its answer",
}
INVALID_HTTP: Final = "the gateway at {url} sent an invalid HTTP response"
