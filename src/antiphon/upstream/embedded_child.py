"""The embedded model's own process: `python -m antiphon.upstream.embedded_child`, started by `embedded` and by nobody else.

Its first line of input is its orders; then the input stays open for as long as the parent lives, and its end is the child's. One
line of output tells where it listens. It imports nothing of ours, so that it is up as soon as the model is.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Event, Thread
from typing import Any


def main() -> None:
    orders = json.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_the_parent, daemon=True).start()
    report = os.dup(1)
    os.dup2(2, 1)  # llama.cpp writes to both; the parent waits for one line that is ours
    try:
        server = _serve(orders)
    except RuntimeError as error:
        sys.exit(str(error))  # llama.cpp has said why
    os.write(report, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(report)
    Event().wait()


def _serve(orders: dict[str, Any]) -> Any:
    """llama.cpp's own server, which lives as long as somebody holds it."""
    import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = orders["model_file"]
    params.model_alias = {orders["model"]}  # else the path of the file stands in every answer
    params.hostnames = [orders["host"]]
    params.port = orders["port"]
    params.api_keys = [orders["key"]]
    params.n_parallel = orders["slots"]
    params.n_ctx = orders["slots"] * orders["context"]
    params.cpuparams.n_threads = orders["threads"]
    params.cpuparams_batch.n_threads = orders["threads"]
    params.cache_ram_mib = 0  # prompts of earlier slots would be kept in up to 8 GiB
    params.warmup = False  # a third of the time until it listens
    params.verbosity = 2  # warnings and errors, for the parent's last words about us
    # Where a client says nothing: the likeliest word, so that the same question has the same answer, and a word that goes on
    # repeating what was just said is less likely. Of 25 plain questions 4 were not answered within 700 tokens, without it 7.
    params.sampling.temp = 0.0
    params.sampling.dry_multiplier = 0.8
    params.n_predict = orders["longest_answer"]
    params.prefill_assistant = False  # else an assistant's last turn is continued, and comes back once more
    params.ui = False
    params.endpoint_slots = False  # it shows what others ask
    return xllamacpp.Server(params)


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once, whatever the model is doing


if __name__ == "__main__":
    main()
