"""Generates docs/configuration.md from the schema of the configuration: settings, types, defaults and meanings.

Usage: `PYTHONPATH=src python tools/configuration_page.py`. A test fails if the page is out of date.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from antiphon.config import (
    BackgroundConfig,
    CompactionConfig,
    HealthConfig,
    KeyConfig,
    ModelConfig,
    ModelRule,
    RetryConfig,
    ServerConfig,
    StoreConfig,
    TargetConfig,
    TelemetryConfig,
    Timeouts,
    TraceConfig,
    UpstreamConfig,
)
from antiphon.profiles.providers import builtin_providers
from antiphon.profiles.toml_source import describe_toml_type

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"


def page() -> str:
    """Returns the text of the page."""
    sections = [render_section(name, struct) for name, struct in SECTIONS.items()]
    return "\n\n".join([HEAD, f"```toml\n{EXAMPLE}```", RULES, *sections, DEFAULTS, render_providers()]) + "\n"


def render_section(name: str, struct: type[Struct]) -> str:
    rows = [
        f"| `{field.encode_name}` | {describe_type(field)} | {describe_default(field)} | {describe_meaning(field)} |"
        for field in fields(struct)
    ]
    introduction = (inspect.getdoc(struct) or "").partition("\n\nExample:")[0].replace("\n", " ")
    return "\n".join(
        [f"## {name}", "", introduction, "", "| setting | type | default | meaning |", "|---|---|---|---|", *rows]
    )


def describe_type(field: FieldInfo) -> str:
    return describe_toml_type(field.type).replace('"', "`")


def describe_default(field: FieldInfo) -> str:
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value is NODEFAULT:
        return "required"
    return "" if value is None or value == "" else f"`{msgspec.json.encode(value).decode()}`"


def describe_meaning(field: FieldInfo) -> str:
    notes = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
    description = next((note.description for note in notes if isinstance(note, Meta) and note.description), "")
    return description.replace("|", "\\|")  # a bar would end the cell, also inside code


def render_providers() -> str:
    rows = [
        f"| `{row.api_key_env}` | `{row.name}` | {render_names(row.name, row.models)} |" for row in builtin_providers()
    ]
    return "\n".join(["| variable | upstream | models |", "|---|---|---|", *rows])


def render_names(provider: str, patterns: list[str]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in (f"{provider}/*", *patterns))


SECTIONS: dict[str, type[Struct]] = {
    "`[server]`": ServerConfig,
    "`[[upstreams]]`": UpstreamConfig,
    "`models`": ModelRule,
    "`[[models]]`": ModelConfig,
    "`targets`": TargetConfig,
    "`[retry]`": RetryConfig,
    "`[health]`": HealthConfig,
    "`[[keys]]`": KeyConfig,
    "`[timeouts]`": Timeouts,
    "`[trace]`": TraceConfig,
    "`[store]`": StoreConfig,
    "`[background]`": BackgroundConfig,
    "`[compaction]`": CompactionConfig,
    "`[telemetry]`": TelemetryConfig,
}

HEAD = """\
# Configuration

This page lists all settings of the gateway. The shortest useful configuration names one server:

```toml
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "http://127.0.0.1:9001/v1"
```

`antiphon serve` reads the file that `--config` names, else the one that `$ANTIPHON_CONFIG` names, else
`antiphon.toml` in the current folder. [Without a file](#without-a-file) it serves the embedded model, and every
provider whose usual key variable is set. `antiphon config check FILE` validates a file, shows all its
faults at once, and prints a summary of it. It warns if an earlier upstream takes the models of a later one.

If the key variable of an upstream is not set, the gateway prints a warning at the start and does not use this upstream.
It uses the others. Requests for the upstream's models get a 404 that names the variable, unless the model has another
target. If no upstream has its key, the configuration is refused.

An example with all settings:"""

EXAMPLE = """\
[server]
host = "127.0.0.1"
port = 8080
workers = 1
allowed_hosts = ["gateway.example.com"]        # in addition to loopback names and host
allowed_origins = ["https://app.example.com"]  # browser origins that may call
max_body_mib = 64
max_answer_mib = 64
max_output_items = 1000
max_input_items = 10000
max_tools = 512
body_workers = 2
max_open_turns = 4000
max_open_turns_per_key = 1000
body_timeout = 300.0
max_unfinished_mib = 256
shutdown_delay = 0.0
watch = false
default_model = "fast"                         # of requests that name no model
claude_aliases = false                         # true: every model also as claude-via-NAME, for Claude Code
websocket = true                               # on /v1/responses
style = "standard"                             # standard | older; default: the form that most clients read
public_metrics = false                         # true: /metrics needs no key
metrics_key_env = "ANTIPHON_METRICS_KEY"       # the key that shows the names of models in /metrics
log = "auto"                                   # auto | json | pretty
grace = 10.0                                   # seconds for requests in flight when the server stops

# The first upstream that serves a model gets its requests.
[[upstreams]]
name = "lab"
dialect = "chat"                               # chat | responses | messages | gemini | ollama
base_url = "http://127.0.0.1:9001/v1"
api_key_env = "LAB_KEY"                        # the variable, not the key; several: ["LAB_KEY", "LAB_KEY_2"]
models = [
    "mock-1",                                  # a name
    "mock-*",                                  # a pattern
    { from = "fast", to = "mock-1" },          # a renamed model
    { from = "lab/*", to = "*" },              # a renamed pattern: lab/x is x on this server
]
profile = "chat"                               # a built-in profile, or a file: "profiles/lab.toml"
context = 32768                                # tokens; default: the size in the server's list of models
losses = "warn"                                # warn | strict

[upstreams.timeouts]                           # of the upstream above
first_byte = 300.0

[[upstreams]]
name = "local"
dialect = "chat"
embedded = true                                # the embedded model
models = ["local"]

[[upstreams]]
name = "mine"
dialect = "responses"
agent = "my_agents:run"                        # an agent in Python, see producer.md
models = ["mine"]

[[models]]                                     # a model with several targets, see routing.md
name = "coder"                                 # the name that clients use
targets = [
    { upstream = "lab", model = "mock-1" },                            # priority 1 unless stated
    { upstream = "local", model = "local", priority = 2, weight = 3 },
    { upstream = "mine", model = "mine", priority = 2, weight = 1 },
]
strategy = "weighted"                          # within one priority: weighted | least-busy | fastest
prefer = "fewest-losses"                       # before the strategy
on_context_length = [{ upstream = "lab", model = "mock-long" }]
on_refusal = []

[models.retry]                                 # of the model above
rounds = 3

[retry]                                        # for all models with several targets or keys
rounds = 2                                     # each target once a round
deadline = 120.0                               # seconds in which attempts may begin

[health]                                       # when a target rests
window = 60.0
min_requests = 5
failure_share = 0.5
rest = 30.0
check_interval = 15.0                          # default: no active checks

[[keys]]
name = "alice"
sha256 = "b62865442726b1f401fb313322a07ebbae39c0d6da3c31b01acf88233f48d231"

[[keys]]
name = "bob"
env = "BOB_KEY"                                # the variable, not the key
style = "older"                                # for clients with this key

[timeouts]
connect = 5.0
first_byte = 60.0
idle = 60.0
total = 600.0

[trace]
dir = "traces"
max_mib = 256
max_days = 7.0

[store]                                        # stored responses
url = "sqlite:///antiphon.db"                  # or postgresql://user@host/database, or off
retention_days = 30.0
max_responses = 100000
conversation_days = 365.0                      # without a change; default: conversations are kept

[background]                                   # requests with background: true
running = 16                                   # at the same time, per process
waiting = 1000                                 # in the queue of all processes

[compaction]                                   # needed with PostgreSQL; SQLite creates its own key
keys_env = ["COMPACTION_KEY", "OLD_KEY"]       # the variables, not the keys

[telemetry]                                    # needs antiphon[otel]
otlp_endpoint = "http://localhost:4318"
propagate = false                              # true: send traceparent to upstreams
"""

RULES = """\
- An unknown setting, a value of the wrong type and a named variable that is not set are errors. The message has the
  file, the line and what was expected.
- Keys are never in the file. The file names environment variables; the keys of clients may also be in it as hashes:
  `printf %s "$KEY" | sha256sum`.
- Paths (`trace.dir`, the file of a profile, the file of `store.url`) are relative to the folder of the configuration
  file. A [profile](profiles.md) in the folder `profiles` beside the configuration file needs no path.
- In model names `*` matches any characters; it is the only wildcard. The first upstream with a matching rule gets the
  request, and its first matching rule decides the name.
- `losses = "strict"` refuses a turn that cannot be translated without loss, before anything is sent to the upstream:
  400 `lossy_translation`, with what would be lost, where and why. Losses in the translation of the answer are
  reported and counted under both settings, because the answer already exists. A request overrides the setting with
  the header `Antiphon-Losses: strict` or `warn`.
- Your own profile can define how its server is called. `key_header = "api-key"` sends the key alone in that header
  instead of `Authorization: Bearer`. The headers of a `[headers]` table are sent with every request. `pass_headers`
  names client headers that are forwarded unchanged to a server of the same dialect.
- The URL of a Gemini server ends in its version, `…/v1beta`; that of a Messages server ends in `…/v1`.
- A file without `[[upstreams]]` has the upstreams that are used without a file."""

DEFAULTS = """\
## Without a file

The embedded model is served as `local`. Every provider whose key variable is set is an upstream too. `name/model`
selects any model of that provider; model names that clearly belong to one provider need no prefix:"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
