"""`EventsToHub`: the thread events of this agent, line by line, as the hub's events."""

from __future__ import annotations

from antiphon.dialects.common.agent_lines import AgentLinesToHub
from antiphon.dialects.common.thread_to_hub import ThreadWire
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps


class EventsToHub(AgentLinesToHub):
    """Lines in, the hub's events out; what the hub has no word for is an extension, `vtcode:…`."""

    def __init__(
        self,
        request: Request,
        opening: Response,
        stamps: Stamps,
        wire: ThreadWire = ThreadWire(slug="vtcode"),  # noqa: B008
    ) -> None:
        del request  # every dialect's has one; here nothing of it is needed
        super().__init__(opening, stamps, wire)
