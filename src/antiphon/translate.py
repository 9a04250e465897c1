"""Translates requests, responses and streams between dialects, without a network. The gateway makes the same calls.

A dialect is `chat`, `responses`, `messages`, `gemini` or `ollama`. A profile describes the server: the one that
receives a request, or the one that sent an answer. Without a profile, a server of the dialect without special rules is
assumed.

Example:
    from antiphon import translate

    body = {"model": "some-model", "messages": [{"role": "user", "content": "Hi"}]}
    translation = translate.request(body, from_="chat", to="messages")
    print(translation.body, list(translation.losses))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.json_lines import JsonLinesDecoder
from antiphon.dialects.common.server_turn import turn_url
from antiphon.dialects.dialect import EventsFromHub, EventsToHub, FrameDecoder, ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.errors import ApiError, InvalidJson, ProfileError
from antiphon.profiles import Profile, load_profile
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.system_stamps import SYSTEM_STAMPS

__all__ = ["StreamTranslator", "TranslatedStream", "Translation", "request", "response", "stream"]

#: A JSON object, or the bytes or the text of one.
Body = bytes | str | Mapping[str, Any]


class Translation(NamedTuple):
    """A translated body and what could not be translated.

    `path` is the path of a request, if its dialect has the model in the URL; otherwise it is empty.

    Example:
        translation = translate.request(b'{"model": "m", "input": "Hi"}', from_="responses", to="gemini")
        assert translation.path == "/models/m:generateContent"
        assert translation.json["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]
    """

    body: bytes
    losses: Losses
    path: str = ""

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object."""
        return msgspec.json.decode(self.body, type=dict[str, Any])


def request(
    body: Body,
    *,
    from_: ServerDialectName,
    to: ServerDialectName,
    profile: str | Profile | None = None,
    model: str | None = None,
) -> Translation:
    """Translates a request of a client of dialect `from_` for a server of dialect `to`.

    `profile` is the profile of the server: its name, its file, or the profile itself. `model` replaces the model of
    the request. Fields that only a gateway can serve are reported as losses.

    Example:
        body = {"model": "m", "input": "Hi", "tools": [{"type": "web_search"}]}
        translation = translate.request(body, from_="responses", to="chat")
        assert translation.json["messages"] == [{"role": "user", "content": "Hi"}]
        assert [loss.path for loss in translation.losses] == ["tools[0]"]
    """
    server_profile = _load_profile(profile, to)
    hub_request, losses = CLIENT_DIALECTS[from_].request_to_hub(_as_bytes(body))
    if model:
        hub_request = replace(hub_request, model=model)
    adapted_request, quirk_losses = server_profile.apply_quirks(hub_request)
    losses.extend(quirk_losses)
    server_dialect = SERVER_DIALECTS[to]
    server_body, wire_losses = server_dialect.request_from_hub(adapted_request, server_profile.wire)
    losses.extend(wire_losses)
    _report_gateway_fields(hub_request, server_body, losses)
    path = (
        turn_url(server_dialect, "", hub_request.model, streams=bool(hub_request.stream))
        if hub_request.model and server_dialect.has_model_in_path
        else ""
    )
    return Translation(server_body, losses, path)


def response(
    body: Body,
    *,
    from_: ServerDialectName,
    to: ServerDialectName,
    profile: str | Profile | None = None,
    model: str | None = None,
    stamps: Stamps = SYSTEM_STAMPS,
) -> Translation:
    """Translates a whole answer of a server of dialect `from_` for a client of dialect `to`. An error is an answer too.

    `profile` is the profile of the server. `model` replaces the model of the answer. `stamps` makes the ids and times
    that the answer lacks.

    Example:
        body = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "Hi."}}]}
        translation = translate.response(body, from_="chat", to="messages")
        assert translation.json["content"] == [{"type": "text", "text": "Hi."}]
    """
    server_profile = _load_profile(profile, from_)
    data = _as_bytes(body)
    hub_request = replace(PERMISSIVE_REQUEST, model=model or _model_in(data), stream=False)
    initial_response = _make_initial_response(hub_request, stamps)
    client_dialect = CLIENT_DIALECTS[to]
    losses = Losses()
    try:
        hub_response, new_losses = SERVER_DIALECTS[from_].response_to_hub(
            data, hub_request, initial_response, stamps, server_profile.wire
        )
        losses.extend(new_losses)
        client_body, new_losses = client_dialect.response_from_hub(hub_response, hub_request)
        losses.extend(new_losses)
    except ApiError as error:
        if error.code == "upstream_invalid_response":
            raise
        client_body = client_dialect.error_from_hub(error)[1]
    return Translation(client_body, losses)


def stream(
    pieces: Iterable[bytes],
    *,
    from_: ServerDialectName,
    to: ServerDialectName,
    profile: str | Profile | None = None,
    model: str | None = None,
    stamps: Stamps = SYSTEM_STAMPS,
) -> TranslatedStream:
    """Translates the stream of a server of dialect `from_` into server-sent events for a client of dialect `to`.

    The pieces may be divided at any byte. They are server-sent events, JSON objects on separate lines, or a JSON array.
    The other parameters are those of `response`. `StreamTranslator` does the same for asynchronous code.

    Example:
        pieces = [b'data: {"choices":[{"delta":{"content":"Hel', b'lo."}}]}\\n\\n', b"data: [DONE]\\n\\n"]
        translated = translate.stream(pieces, from_="chat", to="responses")
        assert b'"text":"Hello."' in b"".join(translated)
        assert not list(translated.losses)
    """
    return TranslatedStream(pieces, StreamTranslator(from_=from_, to=to, profile=profile, model=model, stamps=stamps))


class TranslatedStream:
    """Yields the pieces of a translated stream, once. `losses` is complete at the end.

    Example:
        for piece in translate.stream([b"data: [DONE]\\n\\n"], from_="chat", to="messages"):
            print(piece)
    """

    def __init__(self, pieces: Iterable[bytes], translator: StreamTranslator) -> None:
        self._pieces = pieces
        self._translator = translator

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if translated := self._translator.feed(piece):
                yield translated
        yield self._translator.finish()

    @property
    def losses(self) -> Losses:
        """What could not be translated so far."""
        return self._translator.losses


class StreamTranslator:
    """Translates one stream step by step. The parameters are those of `stream`.

    Example:
        translator = translate.StreamTranslator(from_="chat", to="gemini")
        translated = translator.feed(b'data: {"choices":[{"delta":{"content":"Hi."}}]}\\n\\n')
        translated += translator.finish()
        assert b'"text":"Hi."' in translated
    """

    def __init__(
        self,
        *,
        from_: ServerDialectName,
        to: ServerDialectName,
        profile: str | Profile | None = None,
        model: str | None = None,
        stamps: Stamps = SYSTEM_STAMPS,
    ) -> None:
        self._profile = _load_profile(profile, from_)
        self._from = from_
        self._to = to
        self._model = model
        self._stamps = stamps
        self._frames = _FrameReader()
        self._chain: tuple[EventsToHub, EventsFromHub] | None = None

    @property
    def losses(self) -> Losses:
        """What could not be translated so far."""
        losses = Losses()
        for translator in self._chain or ():
            losses.extend(translator.losses)
        return losses

    def feed(self, data: bytes) -> bytes:
        """Translates the next bytes of the stream. The result may be empty.

        Example:
            translator = translate.StreamTranslator(from_="chat", to="messages")
            assert translator.feed(b"data: ") == b""
        """
        return self._translate(self._frames.feed(data))

    def finish(self) -> bytes:
        """Ends the stream and returns its last bytes.

        Example:
            translator = translate.StreamTranslator(from_="chat", to="messages")
            translator.feed(b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\\n\\n')
            assert b"event: message_stop" in translator.finish()
        """
        translated = self._translate(self._frames.finish())
        to_hub, from_hub = self._chain or self._make_chain(b"")
        return translated + b"".join(map(from_hub.feed, to_hub.finish())) + from_hub.finish()

    def _translate(self, frames: list[sse.Frame]) -> bytes:
        translated: list[bytes] = []
        for frame in frames:
            to_hub, from_hub = self._chain or self._make_chain(frame.data)
            translated += map(from_hub.feed, to_hub.feed(frame))
        return b"".join(translated)

    def _make_chain(self, first_event: bytes) -> tuple[EventsToHub, EventsFromHub]:
        """Makes both translators. The first event of a stream names the model."""
        hub_request = replace(PERMISSIVE_REQUEST, model=self._model or _model_in(first_event), stream=True)
        initial_response = _make_initial_response(hub_request, self._stamps)
        self._chain = (
            SERVER_DIALECTS[self._from].events_to_hub(hub_request, initial_response, self._stamps, self._profile.wire),
            CLIENT_DIALECTS[self._to].events_from_hub(hub_request),
        )
        return self._chain


class _FrameReader:
    """Reads frames from a stream in any of its three forms. The first visible byte shows the form."""

    def __init__(self) -> None:
        self._head = b""
        self._decoder: FrameDecoder | None = None

    def feed(self, data: bytes) -> list[sse.Frame]:
        if self._decoder is None:
            self._head += data
            data = self._head.removeprefix(sse.BOM).lstrip()
            if not data:
                return []
            self._decoder = _decoder_for(data[:1])
        return self._decoder.feed(data)

    def finish(self) -> list[sse.Frame]:
        return [] if self._decoder is None else self._decoder.finish()


class _JsonArrayDecoder:
    """The members of a JSON array, which is decoded at its end."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[sse.Frame]:
        self._data += data
        return []

    def finish(self) -> list[sse.Frame]:
        try:
            members = decode_json(bytes(self._data), type=list[Raw])
        except msgspec.DecodeError as error:
            raise InvalidJson(f"the input starts like a JSON array but is not valid: {error}") from None
        return [sse.Frame("", bytes(member)) for member in members]


def _decoder_for(first_byte: bytes) -> FrameDecoder:
    if first_byte == b"[":
        return _JsonArrayDecoder()
    return JsonLinesDecoder() if first_byte == b"{" else sse.Decoder()


def _as_bytes(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def _load_profile(profile: str | Profile | None, dialect: ServerDialectName) -> Profile:
    """The profile of the server, to which a request goes or from which an answer comes."""
    loaded = (
        profile if isinstance(profile, Profile) else load_profile(profile or SERVER_DIALECTS[dialect].default_profile)
    )
    if loaded.dialect != dialect:
        raise ProfileError(
            f"the profile {loaded.name!r} is for servers of dialect {loaded.dialect!r}; expected a profile of "
            f"dialect {dialect!r}"
        )
    return loaded


def _report_gateway_fields(hub_request: Request, body: bytes, losses: Losses) -> None:
    """Reports the fields that a gateway would serve. The dialects do not report them, and here is no gateway."""
    members = msgspec.json.decode(body)
    for name in GATEWAY_FIELDS:
        value = getattr(hub_request, name)
        if value and value != "disabled" and members.get(name) != value:
            losses.add(
                name,
                f"the field {name!r}",
                "the server has no such field, and there is no gateway that could implement it",
            )


def _make_initial_response(hub_request: Request, stamps: Stamps) -> Response:
    """The response before its output. It asks for no summary, so that reasoning keeps the form of the server."""
    request = replace(hub_request, reasoning=UNSET)
    return make_initial_response(request, id=stamps.new_id("resp"), created_at=stamps.now())


def _model_in(data: bytes) -> str:
    """The model in an answer, or in the first event of one."""
    try:
        members = decode_json(data)
    except msgspec.DecodeError:
        return UNKNOWN_MODEL
    match members:
        case {"model": str() as model} | {"modelVersion": str() as model}:
            return model
        case {"response": {"model": str() as model}} | {"message": {"model": str() as model}}:
            return model
        case _:
            return UNKNOWN_MODEL


UNKNOWN_MODEL: Final = "unknown"
# An answer is translated without its request; this one requests every optional part of an answer.
PERMISSIVE_REQUEST: Final = Request(
    reasoning=ReasoningConfigParam(summary="auto"),
    include=["reasoning.encrypted_content", "message.output_text.logprobs"],
    extra={"chat:stream_options": Raw(b'{"include_usage":true}')},
)
GATEWAY_FIELDS: Final = (
    "previous_response_id",
    "conversation",
    "background",
    "store",
    "truncation",
    "context_management",
)
