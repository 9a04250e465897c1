"""`EventsToHub` translates the thread events of this agent into hub events."""

from __future__ import annotations

from antiphon.dialects.common.agent_lines import AgentLinesToHub
from antiphon.dialects.common.thread_to_hub import ThreadWire
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps


class EventsToHub(AgentLinesToHub):
    """Translates lines into hub events. Events without a hub equivalent become extensions named `vtcode:…`."""

    def __init__(
        self,
        request: Request,
        opening: Response,
        stamps: Stamps,
        wire: ThreadWire = ThreadWire(slug="vtcode"),  # noqa: B008
    ) -> None:
        del request  # part of the common signature; unused here
        super().__init__(opening, stamps, wire)
