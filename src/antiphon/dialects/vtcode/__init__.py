"""VT Code's log of its own work, as `vtcode exec --json` prints it. An agent is only ever a server, so only that half is here."""

from antiphon.dialects.vtcode.events_to_hub import EventsToHub

__all__ = ["EventsToHub"]
