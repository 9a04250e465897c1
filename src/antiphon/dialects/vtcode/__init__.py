"""The VT Code dialect: the log of `vtcode exec --json`. It has servers only, no clients."""

from antiphon.dialects.vtcode.events_to_hub import EventsToHub

__all__ = ["EventsToHub"]
