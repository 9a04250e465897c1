"""The proxy of an upstream, and the answers of a proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from tests.upstream.conftest import Run
from tests.upstream.scripted import OK, Peer, Wire, network, post, serving, until, whole

from antiphon.config import Timeouts
from antiphon.errors import ConfigError, UpstreamFault
from antiphon.upstream.proxies import Proxies, Proxy, open_tunnel

pytestmark = pytest.mark.without_coverage
PROXY = Proxy("proxy.example", 3128)


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, PROXY),
        ({"https_proxy": "proxy.example:3128/"}, PROXY),
        ({"https_proxy": "http://proxy.example:3128", "HTTPS_PROXY": "http://other:1"}, PROXY),
        ({"HTTPS_PROXY": "http://proxy.example"}, Proxy("proxy.example", 80)),
        ({"HTTPS_PROXY": "http://a%40b:p%3Aw@proxy.example:3128"}, Proxy("proxy.example", 3128, "Basic YUBiOnA6dw==")),
        ({"HTTPS_PROXY": "http://a@proxy.example:3128"}, Proxy("proxy.example", 3128, "Basic YTo=")),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
    ],
)
def test_proxy_comes_from_the_environment(environ: dict[str, str], proxy: Proxy | None) -> None:
    assert Proxies(environ).proxy_for("model.example", 443) == proxy


@pytest.mark.parametrize(
    "url", ["socks5://user:secret@h:1", "https://user:secret@h:1", "http://user:secret@:1", "http://secret@h:port"]
)
def test_unsupported_proxy_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY: expected an address such as") as caught:
        Proxies({"HTTPS_PROXY": url})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("exceptions", "host", "direct"),
    [
        ("*", "model.example", True),
        ("model.example", "model.example", True),
        ("MODEL.example", "model.example", True),
        ("other, .example", "model.example", True),
        ("*.example", "model.example", True),
        ("odel.example", "model.example", False),
        ("model.example:443", "model.example", True),
        ("model.example:8443", "model.example", False),
        ("10.0.0.0/8 192.168.1.1", "10.1.2.3", True),
        ("10.0.0.0/8 192.168.1.1", "192.168.1.1", True),
        ("10.0.0.0/8 192.168.1.1", "192.168.1.11", False),
        ("1.2.3", "11.2.3.4", False),
        ("fd00::/8", "fd12::1", True),
        ("[fd12::1]:443", "fd12::1", True),
        ("fd12::1", "fd12::2", False),
        ("", "localhost", True),
        ("", "a.localhost", True),
        ("", "127.0.0.9", True),
        ("", "::1", True),
        ("", "localhost.example", False),
    ],
)
def test_no_proxy_hosts_and_loopback_are_reached_directly(exceptions: str, host: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        way = Proxies({"HTTPS_PROXY": "http://proxy.example:3128", name: exceptions}).proxy_for(host, 443)
        assert way == (None if direct else PROXY)


async def answer_always(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.say(OK)


@pytest.mark.io
def test_https_request_is_tunnelled_and_encrypted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("model.example").configure_cert(context)
    asked: list[bytes] = []
    passed = bytearray()

    async def work() -> None:
        async def pass_on(peer: Peer) -> None:
            asked.append(await peer.request())
            reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            await peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")

            async def back() -> None:
                while data := await reader.read(65536):
                    await peer.say(data)

            backwards = asyncio.create_task(back())
            try:
                while data := await peer._reader.read(65536):
                    passed.extend(data)
                    writer.write(data)
            finally:
                backwards.cancel()
                writer.transport.abort()
                await asyncio.wait([backwards])

        async with serving(answer_always, context) as upstream, serving(pass_on) as proxy:
            async with network({"HTTPS_PROXY": f"http://me:pass@127.0.0.1:{proxy.port}"}) as transport:
                for _ in range(2):
                    answer = await transport.send(
                        "POST", "https://model.example/v1", {"authorization": "Bearer key"}, b"", Timeouts()
                    )
                    assert await whole(answer) == b"ok"
                assert proxy.connections == upstream.connections == 1
            await asyncio.sleep(0)
        credentials = base64.b64encode(b"me:pass")
        assert asked == [
            b"CONNECT model.example:443 HTTP/1.1\r\nhost: model.example:443\r\nproxy-authorization: Basic "
            + credentials
            + b"\r\n\r\n"
        ]
        assert b"Bearer key" not in passed

    run(work())


@pytest.mark.io
def test_plain_http_does_not_use_the_proxy(run: Run) -> None:
    async def work() -> None:
        async with serving(answer_always) as place, network({"HTTPS_PROXY": "http://127.0.0.1:1"}) as transport:
            assert await whole(await post(transport, place.url)) == b"ok"

    run(work())


@pytest.mark.io
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"HTTP/1.1 407 Who are you\r\n\r\n", "refused the credentials"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", r"refused to connect to the upstream \(status 403\)"),
        (b"SSH-2.0\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000, "data after its response"),
        (b"HTTP/1.1 200 OK\r\n\r\n\x16\x03", "data after its response"),
        (b"HTTP/1.1 200", "closed the connection without a response"),
        (b"", "closed the connection without a response"),
    ],
)
def test_refusing_proxy_is_a_fault(run: Run, reply: bytes, why: str) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request.startswith(b"CONNECT [fd00::1]:8443 HTTP/1.1\r\n")
        await peer.say(reply)
        peer.shut()

    async def work() -> None:
        async with serving(script) as proxy, network({"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}) as transport:
            with pytest.raises(UpstreamFault, match=why) as caught:
                await post(transport, "https://[fd00::1]:8443/v1")
            assert (caught.value.code, caught.value.status) == ("upstream_unavailable", 502)
            assert "fd00" not in caught.value.message
            await until(lambda: transport.open_connections == 0)

    run(work())


@pytest.mark.io
def test_unreachable_or_silent_proxy_is_a_fault(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async def work() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        async with network({"HTTPS_PROXY": f"http://127.0.0.1:{port}"}) as transport:
            with pytest.raises(UpstreamFault, match="the proxy that HTTPS_PROXY names cannot be reached"):
                await post(transport, "https://model.example/")
        async with serving(script) as proxy, network({"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}) as transport:
            with pytest.raises(UpstreamFault) as caught:
                await post(transport, "https://model.example/", timeouts=Timeouts(connect=0.05))
            assert caught.value.code == "upstream_timeout"
            sending = asyncio.create_task(post(transport, "https://model.example/"))
            await until(lambda: proxy.connections == 2)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            await until(lambda: transport.open_connections == 0)

    run(work())


def test_proxy_answer_after_cancellation_is_ignored() -> None:
    async def work() -> None:
        wire = Wire()
        asking = asyncio.create_task(open_tunnel(wire.connection, PROXY, "model.example", 443))
        await until(lambda: bool(wire.written))
        asking.cancel()
        wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(work())
