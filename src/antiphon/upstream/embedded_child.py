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
    settings = json.loads(sys.stdin.buffer.readline())
    Thread(target=_exit_with_parent, daemon=True).start()
    report = os.dup(1)
    os.dup2(2, 1)  # llama.cpp writes to both; the parent reads only our line from stdout
    try:
        server = _serve(settings)
    except RuntimeError as error:
        sys.exit(str(error))  # llama.cpp has written the reason
    os.write(report, json.dumps({"address": server.listening_address}).encode() + b"\n")
    os.close(report)
    Event().wait()


def _serve(settings: dict[str, Any]) -> Any:
    """Starts llama.cpp's server, which runs while the object is referenced."""
    import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = settings["model_file"]
    params.model_alias = {settings["model"]}  # otherwise every answer has the file path
    params.hostnames = [settings["host"]]
    params.port = settings["port"]
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["context"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = 0  # disables a prompt cache of up to 8 GiB
    params.warmup = False  # saves a third of the start time
    params.verbosity = 2  # warnings and errors, which the parent reports
    # Defaults for clients that set none: greedy sampling, so that answers are reproducible, with a penalty on
    # repetition. The profile `local` also makes the end of an answer more likely.
    params.sampling.temp = 0.0
    params.sampling.dry_multiplier = 0.8
    params.n_predict = settings["longest_answer"]
    params.prefill_assistant = False  # otherwise a final assistant message is continued and repeated
    params.ui = False
    params.endpoint_slots = False  # shows requests of other clients
    return xllamacpp.Server(params)


def _exit_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once, even during generation


if __name__ == "__main__":
    main()
