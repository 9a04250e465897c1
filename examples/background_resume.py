"""A long answer that is made whether anybody listens or not: begun, left in the middle, and read on from there.

A connection that breaks by itself is replaced without a word; this program breaks its own to show how one comes back days later.
"""

import os

from antiphon.client import Client, output_text
from antiphon.protocol.events import OutputTextDelta

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    seen, number = "", -1
    with client.stream("Count from one to twenty, in words.", background=True) as stream:
        for event in stream:
            number = event.sequence_number
            if isinstance(event, OutputTextDelta):
                seen += event.delta
            if len(seen) > 10:
                break  # the connection is gone; the gateway goes on
        id = stream.response.id
    print(f"left after event {number}: {seen!r}")

# An id and a number are all it takes, in another program and on another day.
with Client() as client:
    with client.resume(id, after=number) as stream:
        rest = "".join(stream.texts())
    print(f"and the rest: {rest!r}")
    kept = client.retrieve(id)
    assert output_text(kept) == seen + rest, "something is missing, or came twice"
    print(kept.status)
    client.delete(id)
