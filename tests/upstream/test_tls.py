"""TLS over real sockets: which certificates are accepted, and where a stream ends."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
import trustme
from tests.upstream.conftest import Run
from tests.upstream.scripted import OK, Peer, Serving, network, post, serving, until, whole

from antiphon.errors import UpstreamFault

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
AUTHORITY = trustme.CA()


@pytest.fixture(autouse=True)
def _trusts_the_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AUTHORITY.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


def server_side(*names: str, authority: trustme.CA = AUTHORITY, expired: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    end = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC) if expired else None
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
    authority.issue_cert(*(names or ("localhost",)), not_before=begin, not_after=end).configure_cert(context)
    return context


def address(place: Serving) -> str:
    return f"https://localhost:{place.port}/v1"


async def answer_always(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.say(OK)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_connection_with_a_valid_certificate_is_reused(run: Run, version: ssl.TLSVersion) -> None:
    context = server_side()
    context.minimum_version = context.maximum_version = version
    asked_for: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked_for.append(name)

    async def work() -> None:
        async with serving(answer_always, context) as place, network() as transport:
            for _ in range(3):
                assert await whole(await post(transport, address(place))) == b"ok"
            assert place.connections == transport.open_connections == 1
            assert asked_for == ["localhost"]

    run(work())


def test_certificate_of_an_ip_address_is_accepted(run: Run) -> None:
    async def work() -> None:
        async with serving(answer_always, server_side("127.0.0.1")) as place, network() as transport:
            assert await whole(await post(transport, f"https://127.0.0.1:{place.port}/")) == b"ok"

    run(work())


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (server_side("other.example"), "for another host name"),
        (server_side(expired=True), "has expired"),
        (server_side(authority=trustme.CA()), "SSL_CERT_FILE can name others"),
    ],
)
def test_server_with_an_invalid_certificate_receives_no_request(run: Run, context: ssl.SSLContext, why: str) -> None:
    """ERR-5: 502 at once, and the message names no host."""
    requests: list[bytes] = []

    async def script(peer: Peer) -> None:
        requests.append(await peer.request())

    async def work() -> None:
        async with serving(script, context) as place, network() as transport:
            with pytest.raises(UpstreamFault, match=why) as caught:
                await post(transport, address(place))
            assert (caught.value.code, caught.value.status) == ("upstream_unavailable", 502)
            assert "localhost" not in caught.value.message
            assert "example" not in caught.value.message
            await until(lambda: transport.open_connections == 0)
        assert requests == []

    run(work())


def test_server_without_tls_is_upstream_unavailable(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="does the upstream use TLS on this port") as caught:
                await post(transport, address(place))
            assert caught.value.code == "upstream_unavailable"

    run(work())


def test_disconnect_during_the_handshake_is_upstream_unavailable(run: Run) -> None:
    async def script(peer: Peer) -> None:
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            for _ in range(5):
                with pytest.raises(UpstreamFault, match="closed the connection during the TLS handshake") as caught:
                    await post(transport, address(place))
                assert caught.value.code == "upstream_unavailable"

    run(work())


def test_cancelled_handshake_leaves_no_connection(run: Run) -> None:
    met = asyncio.Event()

    async def script(peer: Peer) -> None:
        met.set()
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            sending = asyncio.create_task(post(transport, address(place)))
            await met.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await until(lambda: transport.open_connections == 0)

    run(work())


@pytest.mark.parametrize(("ending", "is_proper"), [("shut", True), ("abort", False)])
def test_body_end_requires_a_tls_close_notify(run: Run, ending: str, is_proper: bool) -> None:
    """Anybody on the path can close a connection; only the server can announce the end inside TLS."""
    read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        await read.wait()
        getattr(peer, ending)()

    async def work() -> None:
        async with serving(script, server_side()) as place, network() as transport:
            pieces = (await post(transport, address(place))).pieces()
            assert await anext(pieces) == b"until the end"
            read.set()
            with pytest.raises(StopAsyncIteration if is_proper else UpstreamFault):
                await anext(pieces)
            await until(lambda: transport.open_connections == 0)

    run(work())


def test_invalid_tls_record_ends_the_exchange(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nx")
        peer.say_raw(b"not a record")
        await peer.gone()

    async def work() -> None:
        async with serving(script, server_side()) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="in the middle") as caught:
                await whole(await post(transport, address(place)))
            assert caught.value.code == "upstream_disconnected"

    run(work())


def test_large_bodies_work_over_tls_with_back_pressure(run: Run) -> None:
    body = bytes(range(256)) * 4096 * 8
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        request = await peer.request()
        assert request.endswith(body)
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (2 * len(body)))
        for at in range(0, 2 * len(body), 65536):
            at %= len(body)
            await peer.say(body[at : at + 65536])
            sent += 65536

    async def work() -> None:
        async with serving(script, server_side()) as place, network() as transport:
            answer = await post(transport, address(place), body)
            before, still = -1, 0
            while still < 20:
                before, still = sent, still + 1 if before == sent else 0
                await asyncio.sleep(0.003)
            assert 32 * 1024 <= answer.buffered_bytes <= 96 * 1024
            assert await whole(answer) == body + body

    run(work())
