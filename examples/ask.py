"""One question, one answer: `python examples/ask.py "What is 2 + 2?"`.

The gateway is the one on this machine, or where $ANTIPHON_URL says; $ANTIPHON_MODEL names another model than `local`.
"""

import os
import sys

from antiphon.client import Client, output_text

question = " ".join(sys.argv[1:]) or "What is the capital of Peru?"

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    response = client.create(question, instructions="Answer in one sentence.")
    print(output_text(response))
    if response.usage is not None:
        print(f"({response.usage.input_tokens} tokens in, {response.usage.output_tokens} out)", file=sys.stderr)
