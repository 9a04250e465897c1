"""A talk, line by line from standard input: the gateway remembers what was said, whatever server is behind it.

printf 'My name is Ada.\nWho am I?\n' | python examples/conversation.py
"""

import os
import sys

from antiphon.client import Client

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    before: str | None = None
    for line in sys.stdin:
        with client.stream(line.strip(), previous_response_id=before) as stream:
            for piece in stream.texts():
                print(piece, end="", flush=True)
        print()
        before = stream.response.id
