"""Calls a server of another dialect directly, without a gateway.

python examples/any_server.py https://api.example/v1 messages some-model   # the key is in $SERVER_KEY
"""

import os
import sys

from antiphon import Client

if len(sys.argv) != 4:
    sys.exit("expected three arguments: a URL, a dialect or a profile, and a model")
url, profile, model = sys.argv[1:]

with Client(
    url,
    key=os.environ.get("SERVER_KEY"),
    model=model,
    profile=profile,  # each dialect has a profile with the same name
    on_losses=lambda losses: print(*losses, sep="\n", file=sys.stderr),
) as client:
    response = client.create("Say hello in three languages.", max_output_tokens=200, tools=[{"type": "web_search"}])
    print(response.output_text)
