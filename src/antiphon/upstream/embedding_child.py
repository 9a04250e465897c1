"""The process of the local embedding model, started by `embedded` only: a small server of `POST /v1/embeddings`.

The model is the one in the package `wordllama`: a vector for each token, and for a text the mean of the vectors of its
tokens. The module uses the files of that package, because loading them with the package needs a network. Settings and
standard streams are as in `embedded_child`. The module imports nothing of antiphon, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import sys
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Any

MAX_BODY = 64 * 1024 * 1024
MAX_INPUTS = 2048
MAX_PARALLEL = 4  # requests that are computed at the same time; others wait
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class RefusedRequest(Exception):
    """A request that the server refuses, with its status and the name of the field."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": None}


class TextEmbedder:
    """The vectors of texts."""

    def __init__(self) -> None:
        # Installed by the extra `embeddings`, and only there.
        from safetensors.numpy import load_file  # type: ignore[import-not-found,unused-ignore]
        from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

        spec = find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise FileNotFoundError("the package wordllama is not installed")
        folder = Path(spec.origin).parent
        self._weights = load_file(folder / WEIGHTS)["embedding.weight"].astype("float32")
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @property
    def dimensions(self) -> int:
        return int(self._weights.shape[1])

    def embed(self, texts: list[str], dimensions: int) -> tuple[list[list[float]], int]:
        """The vectors, each of length 1, and the number of tokens."""
        vectors: list[list[float]] = []
        tokens = 0
        for text in texts:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            tokens += len(ids)
            vector = self._weights[ids].mean(axis=0)[:dimensions] if ids else self._weights[0, :dimensions]
            length = float((vector * vector).sum()) ** 0.5 or 1.0
            vectors.append([float(value) for value in vector / length])
        return vectors, tokens


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the gateway. The subclass that `make_handler` returns has the attributes."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a byte
    embedder: TextEmbedder
    settings: dict[str, Any]
    slots: BoundedSemaphore

    def do_GET(self) -> None:
        self._answer(self._list_models)

    def do_POST(self) -> None:
        self._answer(self._embed)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the gateway logs its requests."""

    def _answer(self, make_answer: Any) -> None:
        status, answer = 200, None
        try:
            if not compare_digest(self.headers.get("authorization", ""), f"Bearer {self.settings['key']}"):
                raise RefusedRequest("wrong key", status=401)
            answer = make_answer()
        except RefusedRequest as refusal:
            status, answer = refusal.status, {"error": refusal.error}
            self.close_connection = True  # the body may not have been read
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list_models(self) -> dict[str, Any]:
        if self.path != "/v1/models":
            raise RefusedRequest(f"there is no GET {self.path}", status=404)
        return {"object": "list", "data": [{"id": self.settings["model"], "object": "model", "owned_by": "antiphon"}]}

    def _embed(self) -> dict[str, Any]:
        if self.path != "/v1/embeddings":
            raise RefusedRequest("the local embedding model only makes embeddings: POST /v1/embeddings", status=404)
        request = self._read_request()
        texts = _read_texts(request.get("input"))
        dimensions = request.get("dimensions") or self.embedder.dimensions
        if not isinstance(dimensions, int) or not 1 <= dimensions <= self.embedder.dimensions:
            message = f"dimensions: expected 1 to {self.embedder.dimensions}, got {dimensions!r}"
            raise RefusedRequest(message, "dimensions")
        with self.slots:
            vectors, tokens = self.embedder.embed(texts, dimensions)
        encode = _as_base64 if request.get("encoding_format") == "base64" else list
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.settings["model"], "usage": usage}

    def _read_request(self) -> dict[str, Any]:
        length = int(self.headers.get("content-length", "0"))
        if length > MAX_BODY:
            raise RefusedRequest(f"the body has {length} bytes: expected at most {MAX_BODY}", status=413)
        try:
            request = json.loads(self.rfile.read(length))
        except ValueError:
            request = None
        if not isinstance(request, dict):
            raise RefusedRequest("the body is no JSON object")
        return request


def _read_texts(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedRequest("input: expected a text or a list of texts; this model takes no tokens", "input")
    if not 1 <= len(texts) <= MAX_INPUTS:
        raise RefusedRequest(f"input: expected 1 to {MAX_INPUTS} texts, got {len(texts)}", "input")
    return texts


def _as_base64(vector: list[float]) -> str:
    from base64 import b64encode
    from struct import pack

    return b64encode(pack(f"<{len(vector)}f", *vector)).decode()


def make_handler(embedder: TextEmbedder, settings: dict[str, Any]) -> type[Handler]:
    attributes = {"embedder": embedder, "settings": settings, "slots": BoundedSemaphore(MAX_PARALLEL)}
    return type("EmbeddingHandler", (Handler,), attributes)


def main() -> None:
    settings = json.loads(sys.stdin.buffer.readline())
    Thread(target=_exit_with_parent, daemon=True).start()
    server = ThreadingHTTPServer(
        (settings["host"], settings["port"]), make_handler(TextEmbedder(), settings), bind_and_activate=False
    )
    server.daemon_threads = True
    server.server_bind()
    server.server_activate()
    report = {"address": f"http://{settings['host']}:{server.server_address[1]}"}
    os.write(1, json.dumps(report).encode() + b"\n")
    server.serve_forever()


def _exit_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once, even during a request


if __name__ == "__main__":
    main()
