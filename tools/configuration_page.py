"""Writes docs/configuration.md from the shapes of the configuration: every setting with its type, default and meaning.

Usage: `PYTHONPATH=src python tools/configuration_page.py`. A test says when the page is stale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from antiphon.config import (
    BackgroundConfig,
    CompactionConfig,
    KeyConfig,
    ModelRule,
    ServerConfig,
    StoreConfig,
    TelemetryConfig,
    Timeouts,
    TraceConfig,
    UpstreamConfig,
)
from antiphon.profiles.providers import builtin_providers
from antiphon.profiles.toml_source import describe_toml_type

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"


def page() -> str:
    """The whole page."""
    sections = [section(name, shape) for name, shape in SECTIONS.items()]
    return "\n\n".join([HEAD, f"```toml\n{EXAMPLE}```", RULES, *sections, DEFAULTS, providers()]) + "\n"


def section(name: str, shape: type[Struct]) -> str:
    rows = [
        f"| `{field.encode_name}` | {kind(field)} | {default(field)} | {meaning(field)} |" for field in fields(shape)
    ]
    about = (shape.__doc__ or "").replace("\n    ", " ")
    return "\n".join(
        [f"## {name}", "", about, "", "| setting | type | default | what it does |", "|---|---|---|---|", *rows]
    )


def kind(field: FieldInfo) -> str:
    return describe_toml_type(field.type).replace('"', "`")


def default(field: FieldInfo) -> str:
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value is NODEFAULT:
        return "required"
    return "" if value is None or value == "" else f"`{msgspec.json.encode(value).decode()}`"


def meaning(field: FieldInfo) -> str:
    notes = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
    said = next((note.description for note in notes if isinstance(note, Meta) and note.description), "")
    return said.replace("|", "\\|")  # a bar would end the cell, also inside code


def providers() -> str:
    rows = [f"| `{row.api_key_env}` | `{row.name}` | {names(row.name, row.models)} |" for row in builtin_providers()]
    return "\n".join(["| variable | upstream | models |", "|---|---|---|", *rows])


def names(provider: str, patterns: list[str]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in (f"{provider}/*", *patterns))


SECTIONS: dict[str, type[Struct]] = {
    "`[server]`": ServerConfig,
    "`[[upstreams]]`": UpstreamConfig,
    "`models`": ModelRule,
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

Antiphon reads one TOML file: the one that `--config` names, else the one that `$ANTIPHON_CONFIG` names, else `antiphon.toml` in the
current folder. It needs none: [without a file](#without-a-file) it serves the embedded model, and every provider whose usual key
variable is set. `antiphon config check FILE` says whether a file is good, and what it means.

Every setting, with an example:"""

EXAMPLE = """\
[server]
host = "127.0.0.1"
port = 8080
workers = 1
allowed_hosts = ["gateway.example.com"]        # besides loopback names and the host above
allowed_origins = ["https://app.example.com"]  # pages that may call from a browser
max_body_mib = 64
max_answer_mib = 64
max_output_items = 1000
websocket = true                               # on /v1/responses
style = "standard"                             # standard | older; without it, what most clients read
public_metrics = false                         # whether /metrics answers without a key
log = "auto"                                   # auto | json | pretty
grace = 10.0                                   # seconds for answers under way when the server is stopped

# The first upstream that serves a model is asked.
[[upstreams]]
name = "lab"
dialect = "chat"                               # chat | responses | messages | gemini
base_url = "http://127.0.0.1:9001/v1"
api_key_env = "LAB_KEY"                        # the variable, not the key
models = [
    "mock-1",                                  # a name
    "mock-*",                                  # a pattern
    { from = "fast", to = "mock-1" },          # another name
    { from = "lab/*", to = "*" },              # other names: lab/x is x here
]
profile = "chat"                               # a shipped profile, or a file: "profiles/lab.toml"
context = 32768                                # tokens, where the server's list of models does not say
losses = "warn"                                # warn | strict

[upstreams.timeouts]                           # of the upstream above
first_byte = 300.0

[[upstreams]]
name = "local"
dialect = "chat"
embedded = true                                # the model inside Antiphon
models = ["local"]

[[upstreams]]
name = "mine"
dialect = "responses"
agent = "my_agents:run"                        # an agent of yours, see producer.md
models = ["mine"]

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

[store]                                        # where responses are kept
url = "sqlite:///antiphon.db"                  # or postgresql://user@host/database, or off
retention_days = 30.0
max_responses = 100000
conversation_days = 365.0                      # unchanged; without it conversations stay

[background]                                   # requests with background: true
running = 16                                   # at once, in each process
waiting = 1000                                 # over all processes

[compaction]                                   # only needed with PostgreSQL: SQLite has a key of its own
keys_env = ["COMPACTION_KEY", "OLD_KEY"]       # the variables, not the keys

[telemetry]                                    # needs antiphon[otel]
otlp_endpoint = "http://localhost:4318"
propagate = false                              # traceparent to upstreams
"""

RULES = """\
- A setting that does not exist, a value of the wrong type and a variable that is named but not set are errors, told with file, line
  and what was wanted.
- Keys stand in the environment, never in the file; those of clients may also stand in it as hashes: `printf %s "$KEY" | sha256sum`.
- Paths (`trace.dir`, a profile's file, the file of `store.url`) are meant from the folder of the file that names them. A
  [profile](profiles.md) in the folder `profiles` beside that file needs no path.
- In names of models `*` stands for any characters and is the only wildcard. The first rule that matches
  counts, in the first upstream that has one.
- `losses = "strict"` refuses a turn before the upstream sees any of it if something of it could not be told: 400
  `lossy_translation`, with what, where and why. What an answer loses on its way back is told and counted under either setting: the
  answer exists. A request chooses for itself with the header `Antiphon-Losses: strict` or `warn`.
- A profile of your own may say how its server is called: `key_header = "api-key"` has the key alone in that header in place of
  `Authorization: Bearer`, a `[headers]` table is sent with every request, and `pass_headers` names headers of clients of the same
  dialect that it is sent as they came. The URL of a Gemini server ends in its version, `…/v1beta`, that of a Messages server in
  `…/v1`.
- A file without `[[upstreams]]` has those that hold without a file."""

DEFAULTS = """\
## Without a file

The embedded model is served as `local`. Every provider whose key variable is set is an upstream too; `name/model` asks it for any
of its models, and names that are plainly its own need no prefix:"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
