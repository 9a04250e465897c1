"""Starts a long answer in the background, closes the connection in the middle, and reads the rest later.

The client replaces a broken connection by itself. This program closes its own to show how another program can resume.
"""

import os

from antiphon import Client
from antiphon.types import OutputTextDelta

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    text, last_number = "", -1
    with client.stream("Count from one to twenty, in words.", background=True) as stream:
        for event in stream:
            last_number = event.sequence_number
            if isinstance(event, OutputTextDelta):
                text += event.delta
            if len(text) > 10:
                break  # this closes the connection; the gateway continues
        id = stream.response.id
    print(f"disconnected after event {last_number}: {text!r}")

# Another program needs only the id of the response and the number of the last event.
with Client() as client:
    with client.resume(id, after=last_number) as stream:
        rest = "".join(stream.texts())
    print(f"the rest: {rest!r}")
    response = client.retrieve(id)
    assert response.output_text == text + rest, "an event is missing or repeated"
    print(response.status)
    client.delete(id)
