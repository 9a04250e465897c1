"""The record of one dialect: its server half, its client half, and every fact about it that other packages need.

`registry` holds the records. Code outside `dialects` reads a field of a record and never compares names of dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from antiphon import sse
from antiphon.dialects.common.json_lines import JsonLinesDecoder, encode_line
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.common.relay import LiteralContent
from antiphon.errors import ApiError
from antiphon.protocol.embeddings import EmbeddingOperation
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

ServerDialectName = Literal["chat", "responses", "messages", "gemini", "ollama"]
ClientDialectName = ServerDialectName | Literal["vscode"]
DialectName = ClientDialectName | Literal["agent_log"]
#: How the events of a stream are divided: server-sent events, or one JSON value in each line.
Framing = Literal["sse", "json_lines"]
STREAM_TYPES: Final[dict[Framing, str]] = {"sse": "text/event-stream", "json_lines": "application/x-ndjson"}
KEEPALIVE_COMMENT: Final = sse.encode_comment("waiting for the model")


class EventsToHub(Protocol):
    """The stream reader of a server dialect."""

    @property
    def error(self) -> ApiError | None: ...

    @property
    def losses(self) -> Losses: ...

    def feed(self, frame: sse.Frame) -> list[StreamEvent]: ...

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]: ...

    def limit_output(self, limits: OutputLimits) -> None: ...

    def end_incomplete(self, reason: str) -> list[StreamEvent]: ...


class EventsFromHub(Protocol):
    """The stream writer of a client dialect."""

    @property
    def losses(self) -> Losses: ...

    def feed(self, event: StreamEvent) -> bytes: ...

    def finish(self) -> bytes: ...


class FrameDecoder(Protocol):
    """Decodes the bytes of a stream, in any pieces, to frames."""

    def feed(self, data: bytes) -> list[sse.Frame]: ...

    def finish(self) -> list[sse.Frame]: ...


FRAME_DECODERS: Final[dict[Framing, Callable[[], FrameDecoder]]] = {"sse": sse.Decoder, "json_lines": JsonLinesDecoder}
FRAME_ENCODERS: Final[dict[Framing, Callable[[sse.Frame], bytes]]] = {"sse": sse.encode, "json_lines": encode_line}

# `text_run` of a reader or a writer that accepts many text deltas at once.
TextRunToHub = Callable[[list[sse.Frame], int], tuple[TextRun | None, int]]
TextRunFromHub = Callable[[TextRun], bytes]
# `split_event` of a writer: the pieces of a large event, which are not joined; None for other events.
SplitEvent = Callable[[StreamEvent], list[bytes | memoryview] | None]


class ServerDialect(Struct, frozen=True, kw_only=True):
    """The server half of one dialect. Each call gets the profile's wire options, a `wire_type`. Paths begin after the
    base URL; `{model}` in a path is the resource name of the model."""

    turn_path: str
    request_from_hub: Callable[[Request, Any], tuple[bytes, Losses]]
    events_to_hub: Callable[..., EventsToHub]
    response_to_hub: Callable[..., tuple[Response, Losses]]
    error_to_hub: Callable[[int, Mapping[str, str], bytes], ApiError]
    wire_type: type[Any]
    #: A whole answer, and whole frames of a stream, without the settings of the request; None: answers do not repeat
    #: them.
    without_settings: Callable[[bytes], bytes] | None = None
    frames_without_settings: Callable[[bytes], bytes] | None = None
    #: The shipped profile without the differences of any server.
    default_profile: str
    stream_path: str = ""  # for streams, if different
    models_path: str = "/models"
    #: The end of the base URL if a user gives only the host.
    base_path: str = "/v1"
    framing: Framing = "sse"
    #: The path of the endpoint that counts tokens, and its body for a turn and a model.
    count_path: str = ""
    count_request: Callable[[bytes, str], bytes] | None = None
    #: The operations that return embeddings. Clients of another API get the vectors of the first.
    embeddings: tuple[EmbeddingOperation, ...] = ()
    #: The path of legacy text completions; empty: servers have none.
    completions_path: str = ""
    #: The resource name of a model, for dialects with the model in the path instead of the body.
    model_resource_name: Callable[[str], str] | None = None
    #: Wire options for clients of the same dialect.
    own_client_wire: Mapping[str, Any] = {}
    #: The wire options without a part that the server refused for a model; None: nothing can be left out.
    wire_after_refusal: Callable[[Any, str, RefusedPart], Any | None] | None = None
    #: Whether it is the API of the hub, so that servers refuse what the hub refuses and answers have ids of responses.
    is_hub: bool = False
    #: Whether servers accept reasoning without the signature of its maker.
    accepts_unsealed_reasoning: bool = False
    #: Whether servers open compactions that the gateway did not create.
    opens_foreign_compaction: bool = False
    has_websocket: bool = False
    #: The seconds for which servers usually keep a prompt in their cache after its last use.
    prompt_cache_seconds: float = 300.0
    #: Fields of answers that no request has.
    response_only_fields: frozenset[str] = frozenset()
    #: Fields of stream events that nothing else has.
    event_only_fields: frozenset[str] = frozenset()

    @property
    def stream_type(self) -> str:
        """The content type of streams."""
        return STREAM_TYPES[self.framing]

    @property
    def has_model_in_path(self) -> bool:
        return self.model_resource_name is not None


class ClientDialect(Struct, frozen=True, kw_only=True):
    """The client half of one dialect, and the paths that belong to it."""

    name: ClientDialectName
    request_to_hub: Callable[[bytes], tuple[Request, Losses]]
    events_from_hub: Callable[..., EventsFromHub]
    response_from_hub: Callable[[Response, Request], tuple[bytes, Losses]]
    error_from_hub: Callable[[ApiError], tuple[int, bytes]]
    #: The field of a request that has its conversation.
    input_field: str = "messages"
    #: The types of content parts that the API has; in Gemini's, the members that a part may have. Any other part is
    #: refused where it would have to be translated. Empty: the API has no such types.
    part_types: frozenset[str] = frozenset()
    #: Paths of turns.
    turn_paths: tuple[str, ...] = ()
    #: Actions after the model in a path, `/v1/models/<model>:<action>`, which are turns.
    turn_actions: tuple[str, ...] = ()
    #: Other such actions.
    other_actions: tuple[str, ...] = ()
    #: All paths that begin so belong to the dialect, unknown ones too.
    path_prefixes: tuple[str, ...] = ()
    #: Reads a body that was sent to a path; for dialects in which the path is a part of the request.
    request_at_path: Callable[[str, bytes], tuple[Request, Losses]] | None = None
    #: Whether clients continue a stored answer by its id, which must be one of the gateway then.
    continues_answers: bool = False
    #: An additional response header for the request id.
    request_id_header: bytes = b""
    #: Whether clients may send their key in the query.
    has_key_in_query: bool = False
    framing: Framing = "sse"
    #: The bytes for a stream without events, which clients ignore.
    keepalive: bytes = KEEPALIVE_COMMENT
    #: Whether a stream is a JSON array unless the query has `alt=sse`.
    streams_json_array: bool = False
    #: One model, and the list of models, by their names; None: in the form of the hub.
    model_from_hub: Callable[[str], Any] | None = None
    models_from_hub: Callable[[Sequence[str]], Any] | None = None
    #: The prefix of further names of all models, for clients that offer only models whose names begin so; empty: none.
    #: The configuration enables these names.
    model_alias_prefix: str = ""
    #: Whether a request is refused if the upstream has none of its tools. Clients of some APIs use a tool of the
    #: server, such as a web search, by a request of its own, and would take an answer without the tool for its result.
    needs_a_tool: bool = False
    #: Beginnings of paths that the API has and the gateway does not, each with what to use in place of it.
    unsupported_paths: tuple[tuple[str, str], ...] = ()
    #: The turn in the body of a request to count tokens; None: the body is the turn.
    turn_to_count: Callable[[bytes], bytes] | None = None
    #: The field with the number of tokens; empty: in the form of the hub.
    count_field: str = ""
    #: The reader of the literal content of answers, so that a server's own frames can be passed to clients of the same
    #: dialect; None for the hub, whose events keep all members. It gets the request, the wire options, the initial
    #: response, and the client's name of the model if the gateway maps it.
    answer_content: Callable[[Request, Any, Response, str | None], LiteralContent] | None = None


class Dialect(Struct, frozen=True, kw_only=True):
    """One dialect. Editors are always clients. Logs of agents have neither half: they are read, not requested."""

    name: DialectName
    title: str
    server: ServerDialect | None = None
    client: ClientDialect | None = None
    #: The reader of a log, line by line.
    log_to_hub: Callable[..., Any] | None = None
