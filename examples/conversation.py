"""A conversation, line by line from standard input. The gateway stores it, whatever server answers.

printf 'My name is Ada.\nWho am I?\n' | python examples/conversation.py
"""

import os
import sys

from antiphon import Client

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    previous_id: str | None = None
    for line in sys.stdin:
        with client.stream(line.strip(), previous_response_id=previous_id) as stream:
            for piece in stream.texts():
                print(piece, end="", flush=True)
        print()
        previous_id = stream.response.id
