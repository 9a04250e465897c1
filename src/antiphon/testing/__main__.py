"""Run one of the servers by hand: `python -m antiphon.testing chat --port 9001`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from antiphon.dialects.dialect import ServerDialectName
from antiphon.testing.chat.server import ChatServer
from antiphon.testing.gemini.server import GeminiServer
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.server import MessagesServer
from antiphon.testing.ollama.server import OllamaServer
from antiphon.testing.responses.server import ResponsesServer

SERVERS: dict[ServerDialectName, Callable[..., FakeServer]] = {
    "chat": ChatServer,
    "gemini": GeminiServer,
    "messages": MessagesServer,
    "ollama": OllamaServer,
    "responses": ResponsesServer,
}
STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted."""
    arguments = _parser().parse_args(argv)
    server = SERVERS[arguments.dialect](
        key=arguments.key,
        models=arguments.model,
        max_chars=arguments.max_chars,
        strict=not arguments.lenient,
        port=arguments.port,
    )
    # Block the signals before the server's thread starts, so that this thread receives them in `sigwait`.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with server:
            print(server.base_url, flush=True)
            signal.sigwait(STOP_SIGNALS)
    except OSError as failure:
        print(f"cannot listen on port {arguments.port}: {failure.strerror}", file=sys.stderr)
        return 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m antiphon.testing",
        description="A strict server that needs no model. It echoes; it calls a tool when the last user message says "
        "`call NAME {json}` or speaks of the tool by name; it sums up what tools said.",
    )
    parser.add_argument("dialect", choices=sorted(SERVERS))
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--key", help="the only API key it takes (default: none is asked for)")
    parser.add_argument("--model", action="append", help="a model it serves; may be given again (default: any)")
    parser.add_argument("--max-chars", type=int, help="how long a prompt may be")
    parser.add_argument("--lenient", action="store_true", help="take requests that real servers refuse")
    return parser


if __name__ == "__main__":
    sys.exit(main())
