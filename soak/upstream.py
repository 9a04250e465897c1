"""The scripted upstream of the soak test. The model name selects the reply. Runs until its standard input is closed."""

from __future__ import annotations

import sys
from typing import Final

from antiphon import testing
from antiphon.testing import ChatServer, ReceivedRequest, Reply, turn

WORDS: Final = tuple(f"word{number} " for number in range(20))
HTML: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 27\r\n\r\n<html>Try again later</html"

REPLIES: Final[dict[str, Reply]] = {
    "soak-text": turn(testing.text(*WORDS), testing.usage(50, 20)),
    "soak-tools": turn(
        testing.reasoning("Let me ", "look."),
        testing.text("I look."),
        testing.interleaved(
            testing.tool_call("call_1", "exec_command", '{"cmd":', ' "ls"}'),
            testing.tool_call("call_2", "view_image", '{"path": "a"}'),
        ),
    ),
    "soak-slow": turn(
        testing.text("a"), testing.pause(0.05), testing.text("b"), testing.pause(0.05), testing.text("c")
    ),
    "soak-fin": turn(testing.text(*WORDS), testing.end("fin")),
    "soak-rst": turn(testing.text("a"), testing.end("rst")),
    "soak-cut": turn(testing.text(*WORDS), testing.end("mid-chunk")),
    "soak-hang": turn(testing.text("a"), testing.end("hang")),
    "soak-silent": testing.exactly(testing.end("hang")),
    "soak-nothing": testing.exactly(testing.end("fin")),
    "soak-garbage": testing.exactly(b"garbage\r\n\r\n", testing.end("fin")),
    "soak-html": testing.exactly(HTML),
    "soak-500": testing.error(500),
    "soak-429": testing.error(429, headers={"retry-after": "1"}),
    "soak-error-inside": turn(
        testing.text("a"), testing.raw(b'data: {"error":{"message":"out of memory","code":500}}\n\n')
    ),
}


def main() -> None:
    """Prints the base URL of the server on one line, then serves."""

    def choose_reply(request: ReceivedRequest) -> Reply:
        server.received.clear()  # frees the memory of earlier requests
        return REPLIES.get(request.json["model"], REPLIES["soak-text"])

    server = ChatServer(choose_reply, strict=False)
    with server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
