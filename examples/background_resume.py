"""Starts a long answer in the background, closes the connection in the middle, and reads the rest later.

The client replaces a broken connection by itself. This program closes its own to show how another program can resume.
"""

import os

from antiphon import Client
from antiphon.types import OutputTextDelta

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    seen, number = "", -1
    with client.stream("Count from one to twenty, in words.", background=True) as stream:
        for event in stream:
            number = event.sequence_number
            if isinstance(event, OutputTextDelta):
                seen += event.delta
            if len(seen) > 10:
                break  # this closes the connection; the gateway continues
        id = stream.response.id
    print(f"left after event {number}: {seen!r}")

# Another program needs only the id of the response and the number of the last event.
with Client() as client:
    with client.resume(id, after=number) as stream:
        rest = "".join(stream.texts())
    print(f"and the rest: {rest!r}")
    stored = client.retrieve(id)
    assert stored.output_text == seen + rest, "an event is missing, or came twice"
    print(stored.status)
    client.delete(id)
