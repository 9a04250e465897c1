"""The schema of the configuration: settings, defaults, and the descriptions that the documentation prints.

Only single values are checked here; relations between settings are in `checks`. Keys are not stored: an upstream's key
is read from the environment when needed, a client's key is stored as a hash.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from antiphon.config.model_rules import ModelRule, is_pattern, upstream_model_name
from antiphon.config.routing import MAX_PRIORITY, HealthConfig, ModelConfig, RetryConfig, Seconds, TargetConfig
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import ConfigError

ContextSize = Annotated[int, Meta(ge=256)]  # tokens


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address to listen on, limits, and defaults for all clients."""

    host: Annotated[
        str,
        Meta(description="The address to listen on. Any other than loopback needs at least one key: see `[[keys]]`."),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 selects a free one.")] = 8080
    workers: Annotated[int, Meta(ge=1, le=64, description="Number of server processes.")] = 1
    allowed_hosts: Annotated[
        list[str],
        Meta(
            description="Names in `Host` that are accepted besides loopback names and `host`; `*` accepts any. "
            "Absent: a loopback address accepts only these, and a public address, which requires keys, accepts all."
        ),
    ] = []
    allowed_origins: Annotated[
        list[str],
        Meta(description="Browser origins that may call, such as `https://app.example.com`; all others are refused."),
    ] = []
    max_body_mib: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="The largest request body, in MiB. The history that a request refers to and continues has the "
            "same limit.",
        ),
    ] = 64
    max_input_items: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="The largest number of items in one request; a message, a call and a tool output are one each. "
            "Stored history does not count. A request with more is a 400.",
        ),
    ] = 10_000
    max_tools: Annotated[
        int, Meta(ge=1, le=100_000, description="The largest number of tools in one request; more are a 400.")
    ] = 512
    body_workers: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="The number of further processes in which each server process prepares requests of more than "
            "1 MiB at once, so that they do not block others. They start when needed and end when idle.",
        ),
    ] = 2
    max_open_turns: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="The number of turns that each process serves at once. More turns get a 503 `overloaded`.",
        ),
    ] = 4000
    max_open_turns_per_key: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="The number of turns that each process serves at once for one owner of keys. More turns get "
            "a 429 `rate_limit_exceeded`. Without `[[keys]]` it has no effect.",
        ),
    ] = 1000
    body_timeout: Annotated[
        Seconds,
        Meta(description="Seconds in which a whole request body must arrive; a later one is a 408 `request_timeout`."),
    ] = 300.0
    max_unfinished_mib: Annotated[
        Annotated[int, Meta(ge=1, le=1_048_576)] | None,
        Meta(
            description="The memory for request bodies that have not arrived in full or are not prepared yet, in MiB. "
            "More bodies wait up to 5 s, then get a 503 `overloaded`. Absent: the larger of 256 and twice "
            "`max_body_mib`."
        ),
    ] = None
    max_answer_mib: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="The largest answer of an upstream, in MiB of text, arguments, reasoning and data. A longer "
            "stream ends as `incomplete` (`max_output_bytes`); a longer answer that is not streamed is a 502.",
        ),
    ] = 64
    max_output_items: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="The largest number of output items in one answer. A stream with more ends as `incomplete` "
            "(`max_output_items`); an answer that is not streamed is a 502.",
        ),
    ] = 1000
    default_model: Annotated[
        str | None,
        Meta(
            description="The model of requests that name none; an upstream must serve it. Absent: the only model that "
            "the upstreams list, if they list one name and no pattern; otherwise such requests are refused."
        ),
    ] = None
    claude_aliases: Annotated[
        bool,
        Meta(
            description="Whether every model is also available as `claude-via-NAME`. Clients that send "
            "`anthropic-version` see both names in `/v1/models`; Claude Code offers only models whose names begin with "
            "`claude` or `anthropic`."
        ),
    ] = False
    websocket: Annotated[
        bool,
        Meta(description="Whether `/v1/responses` accepts WebSockets. If not, an upgrade is answered with 426."),
    ] = True
    style: Annotated[
        SelectableEventStyle | None,
        Meta(
            description="The form of events for clients of the Responses API: `standard` is the specification's form, "
            "`older` has `response.reasoning_text.*`, flat errors and no `[DONE]`. Absent: the form that most clients "
            "read, see [clients](clients.md#what-responses-clients-read). The header `Antiphon-Style` and `style` of "
            "a key take precedence."
        ),
    ] = None
    public_metrics: Annotated[
        bool,
        Meta(description="Whether `/metrics` needs no key. It names upstreams, and contains no content of requests."),
    ] = False
    metrics_key_env: Annotated[
        str | None,
        Meta(
            description="The environment variable that holds the key of `/metrics`. It opens no other path. Only "
            "requests with this key see the names of models in the metrics; others see `other`."
        ),
    ] = None
    log: Annotated[
        Literal["auto", "json", "pretty"],
        Meta(description="The format of log lines: `auto` is pretty on a terminal and JSON elsewhere."),
    ] = "auto"
    grace: Annotated[
        float,
        Meta(ge=0, le=3600, description="Seconds that requests in flight have to finish when the server stops."),
    ] = 10.0
    shutdown_delay: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds from a stop signal until the port is closed. Meanwhile requests are served, and "
            "`/readyz` answers 503, so that a load balancer sends no more.",
        ),
    ] = 0.0
    watch: Annotated[
        bool,
        Meta(
            description="Whether a change of the configuration file or of a profile [is loaded]"
            "(reliability.md#reload) without a signal."
        ),
    ] = False

    @property
    def unfinished_bytes(self) -> int:
        """The memory for unfinished bodies, in bytes."""
        return (self.max_unfinished_mib or max(256, 2 * self.max_body_mib)) * 1024 * 1024

    def metrics_key(self, environ: Mapping[str, str]) -> str | None:
        """The key of `/metrics`, if one is configured."""
        return _environment_value(environ, self.metrics_key_env)


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long each step of an upstream's answer may take, in seconds.

    Example:
        client = Client(model="mock-1", timeouts=Timeouts(connect=5.0, first_byte=600.0, idle=60.0, total=3600.0))
        client.close()
    """

    connect: Annotated[Seconds, Meta(description="Until the connection is established, TLS included.")] = 5.0
    first_byte: Annotated[Seconds, Meta(description="From the request until the first byte of the answer.")] = 60.0
    idle: Annotated[Seconds, Meta(description="Between two pieces of the answer.")] = 60.0
    total: Annotated[Seconds, Meta(description="From the request until the end of the answer.")] = 600.0


class UpstreamConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server behind the gateway. If several serve a model, the first gets its requests; the others get them if it
    fails and they list the name of the model, not only a pattern."""

    name: Annotated[str, Meta(description="Its name in logs and `/v1/models`.")]
    dialect: Annotated[
        ServerDialectName, Meta(description="Its API: Chat Completions, Responses, Messages, Gemini or Ollama's own.")
    ]
    base_url: Annotated[
        str,
        Meta(
            description="Its URL, up to the version: `https://host/v1`, `…/v1beta` for Gemini. Required unless it is "
            "the embedded model or an agent."
        ),
    ] = ""
    api_key_env: Annotated[
        str | list[str] | None,
        Meta(
            description="The environment variable that holds its key, or several, each with one key: requests take "
            "them in turn, and a key that is refused or limited [rests](routing.md#several-keys). Absent: it is called "
            "without a key."
        ),
    ] = None
    models: Annotated[
        list[str | ModelRule],
        Meta(
            description='Models it serves: names, patterns with `*`, and tables that rename: `{ from = "fast", to = '
            '"mock-1" }`.'
        ),
    ] = field(default_factory=lambda: ["*"])
    profile: Annotated[
        str | None,
        Meta(
            description="A profile with its quirks: the name of a built-in profile, or a file. Absent: the default "
            "profile of its dialect."
        ),
    ] = None
    embedded: Annotated[
        bool | Literal["embeddings"],
        Meta(
            description='The model inside Antiphon instead of a server, or with `"embeddings"` the '
            "[local embedding model](embeddings.md#without-a-key); its dialect is `chat`."
        ),
    ] = False
    agent: Annotated[
        str | None,
        Meta(
            description="An agent of your own instead of a server, as `module:name`; its dialect is `responses`. Its "
            "answers may take up to a day, unless it has its own `timeouts`."
        ),
    ] = None
    context: Annotated[
        ContextSize | dict[str, ContextSize] | None,
        Meta(
            description="The context size of its models in tokens, or a table of sizes by its own model names: `{ "
            '"mock-*" = 32768 }`. Absent: the size in its list of models, if it has one.'
        ),
    ] = None
    losses: Annotated[
        Literal["warn", "strict"],
        Meta(
            description="What to do if a request cannot be translated without loss: `warn` reports the losses to the "
            "client, `strict` refuses the request. The header `Antiphon-Losses` of a request takes precedence."
        ),
    ] = "warn"
    timeouts: Annotated[
        Timeouts | None,
        Meta(description="Its own timeouts; values that are not set here come from `[timeouts]`."),
    ] = None

    @property
    def profile_name(self) -> str:
        """The profile to load: the configured one, or the default of the dialect."""
        return self.profile or ("local" if self.embedded is True else SERVER_DIALECTS[self.dialect].default_profile)

    def key_variables(self) -> list[str]:
        """The environment variables that hold its keys."""
        if self.api_key_env is None:
            return []
        return [self.api_key_env] if isinstance(self.api_key_env, str) else self.api_key_env

    def api_keys(self, environ: Mapping[str, str]) -> list[str]:
        """The keys from the environment; an empty variable counts as unset."""
        return [key for variable in self.key_variables() if (key := _environment_value(environ, variable))]

    def lacks_key(self, environ: Mapping[str, str]) -> bool:
        """Whether it needs a key and none of its variables is set. Such an upstream is not used."""
        return bool(self.key_variables()) and not self.api_keys(environ)

    def upstream_model(self, name: str) -> str | None:
        """The upstream's name for a model; None if it does not serve it."""
        return next(filter(None, (upstream_model_name(rule, name) for rule in self.models)), None)

    def context_size(self, model: str) -> int | None:
        """The configured context size of a model, by the upstream's name."""
        if not isinstance(self.context, dict):
            return self.context
        return next(
            (size for pattern, size in self.context.items() if upstream_model_name(pattern, model) is not None), None
        )

    def model_names(self) -> list[str]:
        """The names and patterns of models that clients use, each once."""
        return list(dict.fromkeys(rule if isinstance(rule, str) else rule.from_ for rule in self.models))

    def listed_models(self) -> list[str]:
        """The model names without patterns, each once."""
        return [name for name in self.model_names() if not is_pattern(name)]

    @property
    def has_patterns(self) -> bool:
        """Whether it serves models by pattern."""
        return any(map(is_pattern, self.model_names()))


class KeyConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of clients. Without any, all clients on this machine have access, and no others."""

    name: Annotated[str, Meta(description="The owner of all requests with this key. One owner may have several keys.")]
    sha256: Annotated[
        str | None, Meta(description='The key\'s SHA-256 in hex: `printf %s "$KEY" | sha256sum`. Either this or `env`.')
    ] = None
    env: Annotated[str | None, Meta(description="The environment variable that holds the key itself.")] = None
    style: Annotated[
        SelectableEventStyle | None,
        Meta(
            description="As `style` in `[server]`, for clients with this key. The header `Antiphon-Style` takes "
            "precedence."
        ),
    ] = None

    def hash(self, environ: Mapping[str, str]) -> bytes:
        """The hash of the key. A missing key is an error, since without any keys everybody has access."""
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        key = self.key(environ)
        if key is None:
            raise ConfigError(
                f"the key of {self.name!r} is missing: expected it in the environment variable {self.env}"
            )
        return sha256(key.encode()).digest()

    def key(self, environ: Mapping[str, str]) -> str | None:
        """The key itself, if it comes from the environment."""
        return _environment_value(environ, self.env)


class TraceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request traces on disk, for debugging."""

    dir: Annotated[str | None, Meta(description="The folder for traces. Absent: nothing is written.")] = None
    max_mib: Annotated[
        int, Meta(ge=1, description="The maximum size of all traces, in MiB. Beyond it the oldest are removed.")
    ] = 256
    max_days: Annotated[float, Meta(gt=0, le=36_500, description="Traces older than this many days are removed.")] = 7.0


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where responses are stored, and for how long."""

    url: Annotated[
        str | None,
        Meta(
            description="`sqlite:///…/antiphon.db`, `postgresql://…`, or `off`, which stores nothing. Absent: SQLite, "
            "in the user's data folder."
        ),
    ] = None
    retention_days: Annotated[
        float,
        Meta(
            gt=0,
            le=36_500,
            description="Responses older than this many days are removed, once no newer one continues them.",
        ),
    ] = 30.0
    max_responses: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="The maximum number of responses. Beyond it the oldest are removed, once no newer one "
            "continues them. Absent: no limit."
        ),
    ] = None
    conversation_days: Annotated[
        Annotated[float, Meta(gt=0, le=36_500)] | None,
        Meta(description="Conversations unchanged for more than this many days are removed. Absent: none are removed."),
    ] = None


class CompactionConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that seal compactions. With SQLite a key is created automatically, in a file beside the database."""

    keys_env: Annotated[
        list[str],
        Meta(
            description="Environment variables with one key each, 32 bytes in hex or base64: `openssl rand -hex 32`. "
            "The first key seals, all of them open. Needed with PostgreSQL, and by several workers without "
            "a store."
        ),
    ] = []

    def keys(self, environ: Mapping[str, str]) -> list[bytes]:
        """The sealing keys, in order."""
        return [parse_sealing_key(environ.get(variable, "")) for variable in self.keys_env]


def parse_sealing_key(text: str) -> bytes:
    """Parses a key: 64 hex digits, or base64 in either alphabet."""
    text = text.strip()
    try:
        key = (
            bytes.fromhex(text)
            if len(text) == 64
            else urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "===")
        )
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError("a key of [compaction] is invalid: expected 32 bytes in hex or base64")
    return key


class TelemetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry: traces and metrics for a collector. It needs the extra `antiphon[otel]`."""

    otlp_endpoint: Annotated[
        str | None,
        Meta(
            description="The URL of a collector that accepts OTLP over HTTP: `http://localhost:4318`. Absent: the "
            "value of `OTEL_EXPORTER_OTLP_ENDPOINT`; without either, nothing is sent."
        ),
    ] = None
    propagate: Annotated[
        bool,
        Meta(description="Whether upstreams are sent a `traceparent`, so that their spans join the client's trace."),
    ] = False


class BackgroundConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Background responses: requests with `background = true`."""

    running: Annotated[
        int, Meta(ge=1, le=10_000, description="The number of responses that each process runs at once.")
    ] = 16
    waiting: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="The number of queued responses of all processes; further ones are refused."
        ),
    ] = 1000


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings."""

    server: ServerConfig = ServerConfig()
    upstreams: list[UpstreamConfig] = []
    models: list[ModelConfig] = []
    retry: RetryConfig = RetryConfig()
    health: HealthConfig = HealthConfig()
    keys: list[KeyConfig] = []
    timeouts: Timeouts = Timeouts()
    trace: TraceConfig = TraceConfig()
    store: StoreConfig = StoreConfig()
    background: BackgroundConfig = BackgroundConfig()
    compaction: CompactionConfig = CompactionConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    def model_names(self) -> list[str]:
        """The names and patterns of models that clients use, each once."""
        names = [model.name for model in self.models]
        return list(dict.fromkeys([*names, *(name for upstream in self.upstreams for name in upstream.model_names())]))

    def listed_models(self) -> list[str]:
        """The model names without patterns, each once."""
        return [name for name in self.model_names() if not is_pattern(name)]

    def serves(self, name: str) -> bool:
        """Whether a model with this name is served."""
        return any(model.name == name for model in self.models) or any(
            upstream.upstream_model(name) is not None for upstream in self.upstreams
        )

    def find_model(self, name: str) -> ModelConfig | None:
        """The entry of a model, else one that is made from the upstreams: the first that serves it, and the others that
        list its very name. None if no upstream serves it."""
        for model in self.models:
            if model.name == name:
                return model
        targets: list[TargetConfig] = []
        for upstream in self.upstreams:
            own_name = upstream.upstream_model(name)
            if own_name is not None and (not targets or name in upstream.listed_models()):
                target = TargetConfig(
                    upstream=upstream.name, model=own_name, priority=min(len(targets) + 1, MAX_PRIORITY)
                )
                targets.append(target)
        return ModelConfig(name=name, targets=targets) if targets else None

    def key_hashes(self, environ: Mapping[str, str]) -> dict[bytes, KeyConfig]:
        """The configured keys, by hash."""
        return {key.hash(environ): key for key in self.keys}

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """All keys in the environment, each once: they must not appear in logs or traces."""
        keys: list[str | None] = [key for upstream in self.upstreams for key in upstream.api_keys(environ)]
        keys += [key.key(environ) for key in self.keys]
        keys += [_environment_value(environ, variable) for variable in self.compaction.keys_env]
        keys.append(self.server.metrics_key(environ))
        return list(dict.fromkeys(key for key in keys if key is not None))


def _environment_value(environ: Mapping[str, str], variable: str | None) -> str | None:
    return (environ.get(variable) or None) if variable else None


EMBEDDINGS: Final = "embeddings"  # `embedded` of the local embedding model
# The embedded model and the agents are served by the gateway itself, in one dialect each.
EMBEDDED_DIALECT: Final[ServerDialectName] = "chat"
AGENT_DIALECT: Final[ServerDialectName] = "responses"
