"""`upstream/transport`: every answer has a flow, including answers that only have pieces."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.scripted import ScriptedAnswer
from tests.upstream.scripted import OK, Wire

from antiphon.errors import UpstreamFault
from antiphon.upstream.transport import flow_of

pytestmark = pytest.mark.without_coverage


def test_flow_of_pieces_can_stop_and_continue() -> None:
    async def work() -> None:
        pieces: list[bytes] = []

        def sink(piece: bytes) -> bool:
            pieces.append(piece)
            return piece != b"b"

        flow = flow_of(ScriptedAnswer([b"a", b"b", b"c"], {}))
        assert await flow(sink) is False
        assert pieces == [b"a", b"b"]
        assert await flow(sink) is True
        assert pieces == [b"a", b"b", b"c"]

    asyncio.run(work())


def test_flow_of_pieces_raises_their_fault() -> None:
    async def work() -> None:
        flow = flow_of(ScriptedAnswer([b"a", UpstreamFault("gone", code="upstream_disconnected")], {}))
        with pytest.raises(UpstreamFault, match="gone"):
            await flow(lambda _: True)

    asyncio.run(work())


def test_socket_answer_has_its_own_flow() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        assert flow_of(answer) == answer.flow
        wire.deliver(OK)
        assert await flow_of(answer)(lambda _: True)

    asyncio.run(work())
