"""Sends one question and prints the answer: `python examples/ask.py "What is 2 + 2?"`.

The gateway is at $ANTIPHON_URL, by default on this machine. The model is $ANTIPHON_MODEL, by default `local`.
"""

import os
import sys

from antiphon import Client

question = " ".join(sys.argv[1:]) or "What is the capital of Peru?"

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    response = client.create(question, instructions="Answer in one sentence.")
    print(response.output_text)
    if response.usage is not None:
        print(f"({response.usage.input_tokens} tokens in, {response.usage.output_tokens} out)", file=sys.stderr)
