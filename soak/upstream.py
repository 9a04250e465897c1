"""The servers behind the gateway under soak: the name of the model says what happens. Runs until its input is closed."""

from __future__ import annotations

import sys
from typing import Final

from antiphon import fakes
from antiphon.fakes import ChatServer, Received, Reply, turn

WORDS: Final = tuple(f"word{number} " for number in range(20))
HTML: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 27\r\n\r\n<html>Try again later</html"

REPLIES: Final[dict[str, Reply]] = {
    "soak-text": turn(fakes.text(*WORDS), fakes.usage(50, 20)),
    "soak-tools": turn(
        fakes.reasoning("Let me ", "look."),
        fakes.text("I look."),
        fakes.interleaved(
            fakes.tool_call("call_1", "exec_command", '{"cmd":', ' "ls"}'), fakes.tool_call("call_2", "view_image", '{"path": "a"}')
        ),
    ),
    "soak-slow": turn(fakes.text("a"), fakes.pause(0.05), fakes.text("b"), fakes.pause(0.05), fakes.text("c")),
    "soak-fin": turn(fakes.text(*WORDS), fakes.end("fin")),
    "soak-rst": turn(fakes.text("a"), fakes.end("rst")),
    "soak-cut": turn(fakes.text(*WORDS), fakes.end("mid-chunk")),
    "soak-hang": turn(fakes.text("a"), fakes.end("hang")),
    "soak-silent": fakes.exactly(fakes.end("hang")),
    "soak-nothing": fakes.exactly(fakes.end("fin")),
    "soak-garbage": fakes.exactly(b"garbage\r\n\r\n", fakes.end("fin")),
    "soak-html": fakes.exactly(HTML),
    "soak-500": fakes.error(500),
    "soak-429": fakes.error(429, headers={"retry-after": "1"}),
    "soak-error-inside": turn(fakes.text("a"), fakes.raw(b'data: {"error":{"message":"out of memory","code":500}}\n\n')),
}


def main() -> None:
    """Says its address on a line of its own."""

    def reply(received: Received) -> Reply:
        server.received.clear()  # nobody looks at them, and there are many
        return REPLIES.get(received.json["model"], REPLIES["soak-text"])

    server = ChatServer(reply, strict=False)
    with server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
