"""The pool and its requests, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket

import pytest
from tests.collecting import nothing_to_collect
from tests.upstream.conftest import Run
from tests.upstream.scripted import OK, Peer, TurnableClock, network, pass_time, post, serving, until, whole

from antiphon.config import Timeouts
from antiphon.errors import NoAnswer, UpstreamFault
from antiphon.upstream import http
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


async def answer_always(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.say(OK)


def test_http_transport_implements_the_transport_protocol() -> None:
    transport: Transport = HttpTransport({})
    assert transport


def test_request_has_exactly_the_expected_bytes(run: Run) -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.say(OK)

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer = await transport.send(
                "POST", f"{place.url}?a=b#c", {"authorization": "Bearer k"}, b'{"a":1}', Timeouts()
            )
            assert answer.status == 200
            assert await whole(answer) == b"ok"
            host = f"127.0.0.1:{place.port}".encode()
            assert seen == [
                b"POST /v1/x?a=b HTTP/1.1\r\nhost: "
                + host
                + b"\r\naccept-encoding: identity\r\nauthorization: Bearer k\r\n"
                b'content-length: 7\r\n\r\n{"a":1}'
            ]

    run(work())


def test_get_request_has_no_length_and_a_root_path(run: Run) -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.say(OK)

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await transport.send("GET", f"http://localhost:{place.port}", {}, b"", Timeouts()))
            assert seen[0].startswith(b"GET / HTTP/1.1\r\nhost: localhost:")
            assert b"content-length" not in seen[0]

    run(work())


def test_pool_reuses_the_most_recent_connection_first(run: Run) -> None:
    used: list[int] = []
    may_end = {1: asyncio.Event(), 2: asyncio.Event()}

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            used.append(peer.number)
            await peer.say(OK[:-1])
            await may_end[peer.number].wait()
            await peer.say(OK[-1:])

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            first, second = await post(transport, place.url), await post(transport, place.url)
            may_end[2].set()
            await whole(second)
            may_end[1].set()
            await whole(first)
            for _ in range(3):
                await whole(await post(transport, place.url))
            assert used == [1, 2, 1, 1, 1]
            assert transport.open_connections == 2

    run(work())


def test_concurrent_exchanges_use_two_connections(run: Run) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
        await go_on.wait()
        await peer.say(b"x")

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answers = [await post(transport, place.url), await post(transport, place.url)]
            assert transport.open_connections == 2
            go_on.set()
            assert [await whole(answer) for answer in answers] == [b"x", b"x"]

    run(work())


def test_pool_limits_idle_connections(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_IDLE_CONNECTIONS", 1)
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK[:-1])
        await go_on.wait()
        await peer.say(OK[-1:])
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answers = [await post(transport, place.url) for _ in range(3)]
            assert transport.connections_in_use == transport.open_connections == 3
            go_on.set()
            for answer in answers:
                await whole(answer)
            await until(lambda: transport.open_connections == 1)
            assert transport.connections_in_use == 0

    run(work())


def test_pool_closes_connections_after_a_minute_idle() -> None:
    may_end = {1: asyncio.Event(), 2: asyncio.Event()}

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK[:-1])
        await may_end[peer.number].wait()
        await peer.say(OK[-1:])
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            first, second = await post(transport, place.url), await post(transport, place.url)
            may_end[1].set()
            await whole(first)
            await pass_time(30)
            may_end[2].set()
            await whole(second)
            assert transport.open_connections == 2
            await pass_time(31)
            assert transport.open_connections == 1
            await pass_time(30)
            assert transport.open_connections == 0

    with asyncio.Runner(loop_factory=TurnableClock) as runner:
        runner.run(work())


def test_pool_does_not_reuse_an_expired_connection() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnableClock)
        async with serving(answer_always) as place, network() as transport:
            await whole(await post(transport, place.url))
            loop.ahead += 61
            await whole(await post(transport, place.url))
            assert place.connections == 2

    with asyncio.Runner(loop_factory=TurnableClock) as runner:
        runner.run(work())


@pytest.mark.parametrize("ending", ["shut", "reset"])
def test_stale_connection_is_replaced_once(run: Run, ending: str) -> None:
    """The upstream reads the second request and disconnects without a byte: it is sent again on a new connection."""
    requests: list[bytes] = []

    async def script(peer: Peer) -> None:
        requests.append(await peer.request())
        await peer.say(OK)
        requests.append(await peer.request())
        getattr(peer, ending)()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await post(transport, place.url))
            assert await whole(await post(transport, place.url, b'{"n":2}')) == b"ok"
            assert place.connections == 2
            assert requests[1] == requests[2]

    run(work())


def test_reused_connection_that_ends_late_is_not_replaced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream may have worked on the request."""
    monkeypatch.setattr("antiphon.upstream.http.STALE_SECONDS", -1.0)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await post(transport, place.url))
            with pytest.raises(NoAnswer):
                await post(transport, place.url)
            assert place.connections == 1

    run(work())


def test_new_connection_closed_without_an_answer_is_not_retried(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="without an answer") as caught:
                await post(transport, place.url)
            assert (caught.value.code, caught.value.status) == ("upstream_disconnected", 502)
            assert place.connections == 1

    run(work())


def test_server_that_closes_on_accept_is_disconnected(run: Run) -> None:
    async def script(peer: Peer) -> None:
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            for _ in range(10):
                with pytest.raises(UpstreamFault) as caught:
                    await post(transport, place.url)
                assert caught.value.code == "upstream_disconnected"

    run(work())


def test_pooled_connection_that_fails_during_an_answer_is_not_replaced(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.say(b"H")
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await post(transport, place.url))
            with pytest.raises(UpstreamFault, match="in the middle") as caught:
                await post(transport, place.url)
            assert caught.value.code == "upstream_disconnected"
            assert place.connections == 1

    run(work())


def test_connection_closed_by_the_upstream_while_idle_is_not_reused(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await post(transport, place.url))
            await until(lambda: transport.open_connections == 0)
            await whole(await post(transport, place.url))
            assert place.connections == 2

    run(work())


def test_bytes_after_an_answer_close_the_connection(run: Run) -> None:
    """Unrequested bytes of an upstream must not become the answer to the next request."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 4\r\n\r\nevil")
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer = await post(transport, place.url)
            assert await whole(answer) == b"ok"
            assert "a" not in answer.headers
            await until(lambda: transport.open_connections == 0)

    run(work())


def test_bytes_on_an_idle_connection_close_it(run: Run) -> None:
    now = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await now.wait()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            await whole(await post(transport, place.url))
            assert transport.open_connections == 1
            now.set()
            await until(lambda: transport.open_connections == 0)

    run(work())


def test_redirect_is_returned_as_an_answer(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer = await post(transport, place.url)
            assert (answer.status, answer.headers["location"]) == (307, "http://127.0.0.1:1/")
            assert await whole(answer) == b""

    run(work())


def test_early_answer_closes_the_connection(run: Run) -> None:
    """The rest of that request would be read as the start of the next one."""

    async def script(peer: Peer) -> None:
        await peer.say(b"HTTP/1.1 413 Too much\r\ncontent-length: 0\r\n\r\n")
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer = await post(transport, place.url, bytes(32 * 1024 * 1024))
            assert answer.status == 413
            await whole(answer)
            await until(lambda: transport.open_connections == 0)

    run(work())


def test_refused_connection_is_upstream_unavailable(run: Run) -> None:
    """ERR-5: refused at once, and no address in the message."""

    async def work() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        async with network() as transport:
            with pytest.raises(UpstreamFault) as caught:
                await post(transport, f"http://127.0.0.1:{port}/v1")
            assert (caught.value.code, caught.value.status) == ("upstream_unavailable", 502)
            assert caught.value.message == "the upstream cannot be reached"
            assert transport.open_connections == 0

    run(work())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70])
def test_unresolvable_host_is_upstream_unavailable(run: Run, host: str) -> None:
    async def work() -> None:
        async with network() as transport:
            with pytest.raises(UpstreamFault) as caught:
                await post(transport, f"http://{host}/")
            assert caught.value.code == "upstream_unavailable"
            assert host not in caught.value.message

    run(work())


@pytest.mark.parametrize(
    "url",
    ["ftp://h/", "h/v1", "http://", "http://h:99999/", "http://h:x/", "http://h/a b", "http://ü/", "http://h/\r\nx: y"],
)
def test_invalid_url_is_refused(url: str) -> None:
    async def work() -> None:
        async with network() as transport:
            with pytest.raises(UpstreamFault, match="base_url is invalid"):
                await post(transport, url)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "Bearer secret\r\nx: y"),
        ("a", "secret\n"),
        ("a", "secret\0"),
        ("a", "secret™"),
        ("a b", ""),
        ("a:", "secret"),
        ("", "secret"),
        ("a\n", ""),
    ],
)
def test_header_with_line_breaks_is_refused(name: str, value: str) -> None:
    """Invariant 5: and the message does not show a possible key."""

    async def work() -> None:
        async with serving(answer_always) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="HTTP cannot carry") as caught:
                await transport.send("POST", place.url, {name: value}, b"", Timeouts())
            assert "secret" not in caught.value.message
            assert place.connections == 0

    asyncio.run(work())


def test_connect_timeout_is_enforced(run: Run) -> None:
    """A listener with a full backlog drops connection attempts: no refusal, no connection."""

    async def work() -> None:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(4):
                knocking = stack.enter_context(socket.socket())
                knocking.setblocking(False)
                knocking.connect_ex(listener.getsockname())
            async with network() as transport:
                with pytest.raises(UpstreamFault, match=re.escape("within 0.05 s")) as caught:
                    await post(
                        transport, f"http://127.0.0.1:{listener.getsockname()[1]}/", timeouts=Timeouts(connect=0.05)
                    )
                assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)
                await until(lambda: transport.open_connections == 0)

    run(work())


def test_cancelled_request_disconnects_at_once(run: Run) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        left.set()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            sending = asyncio.create_task(post(transport, place.url))
            await asked.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await asyncio.wait_for(left.wait(), 60)
            assert transport.open_connections == 0

    run(work())


def test_cancelled_connect_leaves_no_connection(run: Run) -> None:
    """At any step of the loop: it may have the socket by then, and never report its loss."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK[:-1])
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            for steps in range(12):
                sending = asyncio.create_task(post(transport, place.url))
                for _ in range(steps):
                    await asyncio.sleep(0)
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    (await sending).abort()
                del sending
                await until(lambda: transport.open_connections == 0)

    with nothing_to_collect():
        run(work())


def test_close_ends_running_exchanges(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK[:-1])
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place:
            transport = HttpTransport({})
            answer = await post(transport, place.url)
            reading = asyncio.create_task(whole(answer))
            await until(lambda: answer.buffered_bytes == 0)
            await transport.close()
            with pytest.raises(UpstreamFault) as caught:
                await reading
            assert caught.value.code == "upstream_disconnected"
            assert transport.open_connections == 0

    run(work())


def test_close_ends_pending_connects(run: Run) -> None:
    async def work() -> None:
        async with serving(answer_always) as place:
            for steps in range(8):
                transport = HttpTransport({})
                sending = asyncio.create_task(post(transport, place.url))
                for _ in range(steps):
                    await asyncio.sleep(0)
                await transport.close()
                with contextlib.suppress(UpstreamFault):
                    (await sending).abort()
                await until(lambda transport=transport: transport.open_connections == 0)  # type: ignore[misc]

    run(work())
