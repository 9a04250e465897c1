"""The logs of command-line agents: the JSON lines of `codex exec --json` and `vtcode exec --json`.

It has servers only, no clients: `EventsToHub` reads the lines of one turn.
"""

from antiphon.dialects.agent_log.stream_in import EventsToHub

__all__ = ["EventsToHub"]
