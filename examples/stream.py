"""Prints an answer while it is streamed: `python examples/stream.py "Tell me a story."`."""

import os
import sys

from antiphon import ApiError, Client
from antiphon.types import ItemAdded, OutputTextDelta, ReasoningDelta

question = " ".join(sys.argv[1:]) or "Tell me a story."

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    try:
        with client.stream(question) as stream:
            for event in stream:
                match event:
                    case OutputTextDelta(delta=delta):
                        print(delta, end="", flush=True)
                    case ReasoningDelta(delta=delta):
                        print(delta, end="", file=sys.stderr)
                    case ItemAdded() if len(stream.response.output) > 1:
                        print()  # another message begins
                    case _:
                        pass
            print()
            response = stream.final()
    except ApiError as error:
        sys.exit(f"{error.type}/{error.code}: {error.message}")
    print(f"({response.status}: {len(stream.text)} characters)", file=sys.stderr)
