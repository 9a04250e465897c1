"""What is measured, as data: how each server is started, what it is sent, and how it tells its version.

`{port}`, `{upstream}` (the mock's port), `{folder}` (for files of this run) and `{key}` are filled in at the start. What is
installed only to be measured stands in `.perf/`, each in an environment of its own; the Makefile puts it there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

HERE = Path(__file__).resolve().parent
PERF = HERE.parent / ".perf"
BIN = PERF / "bin"

Kind = Literal["responses", "chat"]


class Target(Struct, frozen=True, kw_only=True):
    """A server."""

    name: str
    what: str  # one line for the report
    command: list[str]
    version: list[str]  # a command whose first line says it
    kind: Kind = "responses"  # which body it is sent
    path: str = "/v1/responses"
    environ: dict[str, str] = {}
    files: dict[str, str] = {}  # written into the run's folder before the start
    streams_only: bool = False
    workers: int = 1  # processes; more than one get every core
    share: float = 1.0  # of a workload's requests: slow servers get fewer
    patience: float = 30.0  # seconds until it must listen

    @property
    def is_installed(self) -> bool:
        return all(Path(word).exists() for word in self.command if word.startswith(str(PERF)))


def versions_of(python: str, *packages: str) -> list[str]:
    code = "import sys; from importlib.metadata import version; print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    return [python, "-c", code, *packages]


NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
  access_log off; client_body_buffer_size 256k; keepalive_requests 1000000; tcp_nodelay on;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream mock { server 127.0.0.1:{upstream}; keepalive 2000; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:{port} backlog=4096;
    location / {
      proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 600s;
    }
  }
}
"""

# The whole path: a client key, the routing, validation, policy, losses, a log line a request, a store. No traces.
ANTIPHON = """
[server]
port = {port}
log = "json"
workers = {workers}
[store]
url = "{store}"
[[upstreams]]
name = "mock"
dialect = "{dialect}"
base_url = "http://127.0.0.1:{upstream}/{version}"
api_key_env = "BENCH_UPSTREAM_KEY"
models = ["mock-*"]
[[keys]]
name = "bench"
env = "BENCH_KEY"
"""

LITELLM = """
model_list:
  - model_name: "mock-*"
    litellm_params:
      {model: "openai/mock-*", api_base: "http://127.0.0.1:{upstream}/v1", api_key: unused, use_chat_completions_api: true}
litellm_settings: {drop_params: true, telemetry: false, num_retries: 0, request_timeout: 600}
"""

ROSETTA = """
{
  "providers": {"openai_chat": {"api_key": "unused", "base_url": "http://127.0.0.1:{upstream}/v1"}},
  "models": {models},
  "server": {"host": "127.0.0.1", "port": {port}, "open_on_no_keys": true, "data_dir": "{folder}"}
}
"""

# LLM-Rosetta wants every model by its name: those of the workloads.
MODELS = ["mock-n64", *(f"mock-n64-{what}" for what in ("g10000", "g20000", "tools", "reasoning"))]

SQLITE = "sqlite:///{folder}/antiphon.db"


def antiphon(
    name: str,
    what: str,
    *,
    store: str = SQLITE,
    workers: int = 1,
    dialect: str = "chat",
    source: Path | None = None,
    commit: str = "",
) -> Target:
    """The gateway, with a store, before a server of a dialect. Whether a response is kept is for each request to say. `source` is
    a folder with the package of a commit, in place of the installed one."""
    values = {
        "workers": str(workers),
        "store": store,
        "dialect": dialect,
        "version": "v1beta" if dialect == "gemini" else "v1",
    }
    return Target(
        name=name,
        what=what,
        command=[sys.executable, "-m", "antiphon", "serve", "--config", "{folder}/antiphon.toml"],
        version=["echo", f"commit {commit}"]
        if commit
        else versions_of(sys.executable, "antiphon", "uvicorn", "uvloop", "httptools", "msgspec", "apsw", "asyncpg"),
        environ={"BENCH_KEY": "{key}", "BENCH_UPSTREAM_KEY": "unused"}
        | ({"PYTHONPATH": str(source)} if source else {}),
        files={"antiphon.toml": _filled(ANTIPHON, values)},
        workers=workers,
    )


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


CORE = [
    Target(
        name="nginx",
        what="passes chat through, unbuffered, translates nothing: the floor",
        command=[f"{PERF}/nginx", "-e", "{folder}/nginx.log", "-c", "{folder}/nginx.conf"],
        version=["sh", "-c", f"{PERF}/nginx -v 2>&1"],
        kind="chat",
        path="/v1/chat/completions",
        files={"nginx.conf": NGINX},
    ),
    antiphon("antiphon", "validation, a client key, policy, losses, a log line a request; traces off, nothing kept"),
    Target(
        name="naive",
        what="the usual stack (`bench/naive`): FastAPI, pydantic and httpx; no key, no policy, no losses",
        command=[
            *(f"{PERF}/naive/bin/python", "-m", "uvicorn", "--app-dir", str(HERE.parent), "bench.naive.app:app"),
            *("--port", "{port}", "--no-access-log"),
        ],
        version=versions_of(f"{PERF}/naive/bin/python", "fastapi", "pydantic", "httpx", "uvicorn"),
        environ={"UPSTREAM": "http://127.0.0.1:{upstream}/v1/chat/completions"},
        share=0.1,
    ),
]
PEERS = [
    Target(
        name="litellm",
        what="LiteLLM proxy, `/v1/responses` bridged to chat, one worker, no database",
        command=[
            *(
                f"{PERF}/litellm/bin/litellm",
                "--config",
                "{folder}/litellm.yaml",
                "--host",
                "127.0.0.1",
                "--port",
                "{port}",
            ),
            *("--num_workers", "1"),
        ],
        version=versions_of(f"{PERF}/litellm/bin/python", "litellm"),
        environ={
            "LITELLM_MASTER_KEY": "{key}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_TELEMETRY": "False",
            "NO_PROXY": "127.0.0.1",
        },
        files={"litellm.yaml": LITELLM},
        share=0.03,
        patience=120.0,
    ),
    Target(
        name="llm-rosetta",
        what="LLM-Rosetta's gateway, `/v1/responses` translated to chat, one process, no key",
        command=[f"{PERF}/llm-rosetta/bin/llm-rosetta-gateway", "--config", "{folder}/rosetta.jsonc"],
        version=versions_of(f"{PERF}/llm-rosetta/bin/python", "llm-rosetta"),
        environ={"NO_PROXY": "127.0.0.1", "HOME": "{folder}"},
        files={"rosetta.jsonc": _filled(ROSETTA, {"models": json.dumps(dict.fromkeys(MODELS, "openai_chat"))})},
        share=0.1,
        patience=60.0,
    ),
    Target(
        name="open-responses-server",
        what="translates to chat, streams only",
        command=[
            *(
                f"{PERF}/open-responses-server/bin/python",
                "-m",
                "uvicorn",
                "open_responses_server.server_entrypoint:app",
            ),
            *("--host", "127.0.0.1", "--port", "{port}", "--no-access-log"),
        ],
        version=versions_of(f"{PERF}/open-responses-server/bin/python", "open-responses-server"),
        path="/responses",
        environ={
            "OPENAI_BASE_URL_INTERNAL": "http://127.0.0.1:{upstream}",
            "OPENAI_API_KEY": "unused",
            "API_ADAPTER_PORT": "{port}",
        },
        streams_only=True,
        share=0.08,
        patience=60.0,
    ),
]
DIALECTS = [
    antiphon("antiphon-messages", "the same before a server of Messages", dialect="messages"),
    antiphon("antiphon-gemini", "the same before a server of Gemini", dialect="gemini"),
]
LEFT_OUT = (
    "Left out: responses.js, which is on no package index; Portkey's gateway, which translates nothing and whose streams fail on "
    "Node 20."
)
TARGETS = {target.name: target for target in (*CORE, *PEERS, *DIALECTS)}
