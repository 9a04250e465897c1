"""The process of the embedded model: `python -m antiphon.upstream.embedded_child`, started by `embedded` only.

The first line of stdin has its settings. Then stdin stays open while the parent lives, and the child exits when it
closes. One line of stdout has the address it listens on. The module imports nothing of antiphon, so that it starts
quickly.
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
    os.dup2(2, 1)  # llama.cpp writes to both; the parent reads only our line from stdout
    try:
        server = _serve(orders)
    except RuntimeError as error:
        sys.exit(str(error))  # llama.cpp has written the reason
    os.write(report, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(report)
    Event().wait()


def _serve(orders: dict[str, Any]) -> Any:
    """Starts llama.cpp's server, which runs while the object is referenced."""
    import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = orders["model_file"]
    params.model_alias = {orders["model"]}  # otherwise every answer has the file path
    params.hostnames = [orders["host"]]
    params.port = orders["port"]
    params.api_keys = [orders["key"]]
    params.n_parallel = orders["slots"]
    params.n_ctx = orders["slots"] * orders["context"]
    params.cpuparams.n_threads = orders["threads"]
    params.cpuparams_batch.n_threads = orders["threads"]
    params.cache_ram_mib = 0  # disables a prompt cache of up to 8 GiB
    params.warmup = False  # saves a third of the start time
    params.verbosity = 2  # warnings and errors, which the parent reports
    # Defaults for clients that set none: greedy sampling, so that answers are reproducible, with a penalty on
    # repetition. With it, 4 of 25 plain questions were not answered within 700 tokens, without it 7.
    params.sampling.temp = 0.0
    params.sampling.dry_multiplier = 0.8
    params.n_predict = orders["longest_answer"]
    params.prefill_assistant = False  # otherwise a final assistant message is continued and repeated
    params.ui = False
    params.endpoint_slots = False  # shows requests of other clients
    return xllamacpp.Server(params)


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once, even during generation


if __name__ == "__main__":
    main()
