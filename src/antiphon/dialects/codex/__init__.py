"""The Codex dialect: the log of `codex exec --json`. It has servers only, no clients."""

from antiphon.dialects.codex.events_to_hub import EventsToHub

__all__ = ["EventsToHub"]
