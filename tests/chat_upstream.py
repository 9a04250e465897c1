"""A chat server for measured turns, as a process: `python chat_upstream.py PORT`. It writes an answer in one piece; the
answers of models that end with the digits of an hour never end."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENDLESS = "-g3600000000"
PIECES = 16


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["model"].endswith(ENDLESS):
            self._write_head({})
            self.wfile.write(encode_chunk({"content": "a"}))
            threading.Event().wait()
        pieces = [encode_chunk({"role": "assistant", "content": ""})]
        pieces += [encode_chunk({"content": "word "}) for _ in range(PIECES)]
        body = b"".join([*pieces, encode_chunk({}, "stop"), b"data: [DONE]\n\n"])
        self._write_head({"content-length": str(len(body))})
        self.wfile.write(body)

    def _write_head(self, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Writes no log."""


def encode_chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
