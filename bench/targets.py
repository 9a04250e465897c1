"""The measured servers as data: command, configuration files, request path, command for the version.

`{port}`, `{upstream}` (port of the mock), `{folder}` (for files of the run) and `{key}` are replaced at the start.
The Makefile installs servers that are needed only for measurements in `.perf/`, each in its own environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from msgspec import Struct

BENCH_FOLDER = Path(__file__).resolve().parent
PERF = BENCH_FOLDER.parent / ".perf"
BIN = PERF / "bin"

Kind = Literal["responses", "chat"]


class Target(Struct, frozen=True, kw_only=True):
    """A server to measure."""

    name: str
    description: str  # one line for the report
    command: list[str]
    version_command: list[str]  # prints the version in its first line
    kind: Kind = "responses"  # API of the requests
    path: str = "/v1/responses"
    environ: dict[str, str] = {}
    files: dict[str, str] = {}  # written to the folder of the run before the start
    streams_only: bool = False
    workers: int = 1  # number of processes; more than one process runs on both cores
    share: float = 1.0  # share of a workload's requests; slow servers get fewer
    start_timeout: float = 30.0  # seconds until it must listen

    @property
    def is_installed(self) -> bool:
        return all(Path(word).exists() for word in self.command if word.startswith(str(PERF)))


def package_versions_command(python: str, *packages: str) -> list[str]:
    """Returns a command that prints the versions of the packages."""
    code = (
        "import sys; from importlib.metadata import version; "
        "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    )
    return [python, "-c", code, *packages]


def fill_placeholders(text: str, values: dict[str, str]) -> str:
    """Replaces `{name}` by its value. Other braces stay as they are."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


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
      proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }
  }
}
"""

# The complete path: a client key, routing, validation, policy, losses, one log entry per request, a store. No traces.
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
      {
        model: "openai/mock-*", api_base: "http://127.0.0.1:{upstream}/v1", api_key: unused,
        use_chat_completions_api: true,
      }
litellm_settings: {drop_params: true, telemetry: false, num_retries: 0, request_timeout: 600}
"""

ROSETTA = """
{
  "providers": {"openai_chat": {"api_key": "unused", "base_url": "http://127.0.0.1:{upstream}/v1"}},
  "models": {models},
  "server": {"host": "127.0.0.1", "port": {port}, "open_on_no_keys": true, "data_dir": "{folder}"}
}
"""

# LLM-Rosetta needs the name of every model. These are the models of the workloads.
MODELS = ["mock-n64", *(f"mock-n64-{suffix}" for suffix in ("g10000", "g20000", "tools", "reasoning"))]

SQLITE = "sqlite:///{folder}/antiphon.db"


def antiphon(
    name: str,
    description: str,
    *,
    store: str = SQLITE,
    workers: int = 1,
    dialect: str = "chat",
    source: Path | None = None,
    commit: str = "",
) -> Target:
    """Returns a target for the gateway with a store and an upstream of the dialect.

    `source` is a folder with the package of another commit, which is used instead of the installed package.
    """
    values = {
        "workers": str(workers),
        "store": store,
        "dialect": dialect,
        "version": "v1beta" if dialect == "gemini" else "v1",
    }
    return Target(
        name=name,
        description=description,
        command=[sys.executable, "-m", "antiphon", "serve", "--config", "{folder}/antiphon.toml"],
        version_command=["echo", f"commit {commit}"]
        if commit
        else package_versions_command(
            sys.executable, "antiphon", "uvicorn", "uvloop", "httptools", "msgspec", "apsw", "asyncpg"
        ),
        environ={"BENCH_KEY": "{key}", "BENCH_UPSTREAM_KEY": "unused"}
        | ({"PYTHONPATH": str(source)} if source else {}),
        files={"antiphon.toml": fill_placeholders(ANTIPHON, values)},
        workers=workers,
    )


CORE = [
    Target(
        name="nginx",
        description="forwards chat requests without translation or buffering",
        command=[f"{PERF}/nginx", "-e", "{folder}/nginx.log", "-c", "{folder}/nginx.conf"],
        version_command=["sh", "-c", f"{PERF}/nginx -v 2>&1"],
        kind="chat",
        path="/v1/chat/completions",
        files={"nginx.conf": NGINX},
    ),
    antiphon(
        "antiphon",
        "validation, a client key, policy, losses, one log entry per request; traces off, responses not stored",
    ),
    Target(
        name="naive",
        description="a typical stack (`bench/naive`): FastAPI, pydantic and httpx; no key, no policy, no losses",
        command=[
            *(
                f"{PERF}/naive/bin/python",
                "-m",
                "uvicorn",
                "--app-dir",
                str(BENCH_FOLDER.parent),
                "bench.naive.app:app",
            ),
            *("--port", "{port}", "--no-access-log"),
        ],
        version_command=package_versions_command(f"{PERF}/naive/bin/python", "fastapi", "pydantic", "httpx", "uvicorn"),
        environ={"UPSTREAM": "http://127.0.0.1:{upstream}/v1/chat/completions"},
        share=0.1,
    ),
]
PEERS = [
    Target(
        name="litellm",
        description="LiteLLM proxy, `/v1/responses` translated to chat, one worker, no database",
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
        version_command=package_versions_command(f"{PERF}/litellm/bin/python", "litellm"),
        environ={
            "LITELLM_MASTER_KEY": "{key}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_TELEMETRY": "False",
            "NO_PROXY": "127.0.0.1",
        },
        files={"litellm.yaml": LITELLM},
        share=0.03,
        start_timeout=120.0,
    ),
    Target(
        name="llm-rosetta",
        description="LLM-Rosetta's gateway, `/v1/responses` translated to chat, one process, no key",
        command=[f"{PERF}/llm-rosetta/bin/llm-rosetta-gateway", "--config", "{folder}/rosetta.jsonc"],
        version_command=package_versions_command(f"{PERF}/llm-rosetta/bin/python", "llm-rosetta"),
        environ={"NO_PROXY": "127.0.0.1", "HOME": "{folder}"},
        files={
            "rosetta.jsonc": fill_placeholders(ROSETTA, {"models": json.dumps(dict.fromkeys(MODELS, "openai_chat"))})
        },
        share=0.1,
        start_timeout=60.0,
    ),
    Target(
        name="open-responses-server",
        description="translates to chat, streams only",
        command=[
            *(
                f"{PERF}/open-responses-server/bin/python",
                "-m",
                "uvicorn",
                "open_responses_server.server_entrypoint:app",
            ),
            *("--host", "127.0.0.1", "--port", "{port}", "--no-access-log"),
        ],
        version_command=package_versions_command(f"{PERF}/open-responses-server/bin/python", "open-responses-server"),
        path="/responses",
        environ={
            "OPENAI_BASE_URL_INTERNAL": "http://127.0.0.1:{upstream}",
            "OPENAI_API_KEY": "unused",
            "API_ADAPTER_PORT": "{port}",
        },
        streams_only=True,
        share=0.08,
        start_timeout=60.0,
    ),
]
DIALECTS = [
    antiphon("antiphon-messages", "the same with a Messages server", dialect="messages"),
    antiphon("antiphon-gemini", "the same with a Gemini server", dialect="gemini"),
]
OMITTED_GATEWAYS = (
    "Not included: responses.js, which is not on a package index; Portkey's gateway, which does not translate and "
    "whose streams fail on Node 20."
)
TARGETS = {target.name: target for target in (*CORE, *PEERS, *DIALECTS)}
