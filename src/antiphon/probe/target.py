"""The probed server: its address, and one exchange with it, with a verdict. Requests are not repeated here.

Keys are removed from the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon import __version__
from antiphon.config import Timeouts
from antiphon.dialects.common.server_turn import turn_url, url_at
from antiphon.dialects.common.upstream_errors import retry_after
from antiphon.dialects.dialect import FRAME_DECODERS, ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ApiError, UpstreamFault
from antiphon.probe.finding import Evidence, Verdict, excerpt
from antiphon.profiles import Profile
from antiphon.protocol.codec import decode_json
from antiphon.protocol.fold import ResponseFold
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ResponseStatus
from antiphon.system_stamps import SYSTEM_STAMPS
from antiphon.upstream.body import BodyTooLarge, read_partial_body
from antiphon.upstream.transport import Transport


class ProbeTarget(Struct, frozen=True, kw_only=True):
    """The server's base URL, up to the version; the model, the key and the timeouts."""

    base_url: str
    #: The base profile of the dialect; its headers are sent.
    base_profile: Profile
    model: str = ""
    key: str | None = None
    key_header: str = "authorization"
    timeouts: Timeouts = Timeouts()

    @property
    def dialect(self) -> ServerDialectName:
        return self.base_profile.dialect

    def url(self, path: str = "", *, streams: bool = False) -> str:
        server_dialect = SERVER_DIALECTS[self.dialect]
        return (
            url_at(path, server_dialect, self.base_url, self.model)
            if path
            else turn_url(server_dialect, self.base_url, self.model, streams=streams)
        )

    @property
    def model_field(self) -> dict[str, str]:
        """The field with the model; none if the model is in the path."""
        return {} if SERVER_DIALECTS[self.dialect].has_model_in_path else {"model": self.model}

    @property
    def headers(self) -> dict[str, str]:
        headers = {
            "user-agent": f"antiphon-probe/{__version__}",
            "content-type": "application/json",
            **self.base_profile.headers,
        }
        if self.key is not None:
            headers[self.key_header] = f"Bearer {self.key}" if self.key_header == "authorization" else self.key
        return headers


class ProbeResult(NamedTuple):
    """The answer to one request, with a verdict on this exchange alone."""

    #: `refused` concerns this request; `down` may be temporary.
    verdict: Verdict
    message: str
    evidence: Evidence
    response: Response | None = None
    retry_after: float = 0.0
    #: Whether the request timed out: sending it again would take as long.
    has_timed_out: bool = False
    body: bytes = b""
    #: Whether no server or no API is at the URL: another form of the request cannot help.
    is_no_api: bool = False


class ServerConnection:
    """Sends requests to one server and counts them."""

    def __init__(self, target: ProbeTarget, transport: Transport) -> None:
        self.target = target
        self.request_count = 0
        self._transport = transport

    async def send_request(
        self, body: Any, *, streams: bool = False, path: str = "", method: str = "POST"
    ) -> ProbeResult:
        """Send a body and judge the answer."""
        url = self.target.url(path, streams=streams)
        encoded_body = b"" if body is None else msgspec.json.encode(body)
        self.request_count += 1
        evidence = Evidence(
            request=f"{method} {url.removeprefix(self.target.base_url)}", body=body, status=None, excerpt=""
        )
        try:
            answer = await self._transport.send(method, url, self.target.headers, encoded_body, self.target.timeouts)
        except UpstreamFault as fault:
            message = FAULT_MESSAGES.get(fault.code, "the server's answer is not HTTP")
            return ProbeResult(
                "down",
                message,
                replace(evidence, excerpt=message),
                has_timed_out=fault.code == "upstream_timeout",
                is_no_api=True,
            )
        body_bytes, break_fault = await read_partial_body(answer, MAX_BODY_BYTES)
        if isinstance(break_fault, BodyTooLarge):
            return ProbeResult("down", f"the answer has more than {MAX_BODY_BYTES} bytes", evidence, is_no_api=True)
        evidence = replace(evidence, status=answer.status, excerpt=self._without_key(excerpt(body_bytes)))
        if break_fault is not None:
            message = FAULT_MESSAGES.get(break_fault.code, "the server's answer is not HTTP")
            return ProbeResult(
                "down",
                message,
                evidence,
                has_timed_out=break_fault.code == "upstream_timeout",
                body=body_bytes,
                is_no_api=True,
            )
        return self._judge_answer(
            answer.status, answer.headers, body_bytes, evidence, streams=streams, is_turn=not path
        )

    def _judge_answer(
        self, status: int, headers: Mapping[str, str], body: bytes, evidence: Evidence, *, streams: bool, is_turn: bool
    ) -> ProbeResult:
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if 300 <= status < 400:
            return ProbeResult(
                "down",
                f"the server redirects to {excerpt(headers.get('location', 'an unknown address'), 100)}",
                evidence,
                body=body,
                is_no_api=True,
            )
        if content_type == "text/html":
            return ProbeResult(
                "down",
                f"the answer is an HTML page ({status}): a login page, or not an API",
                evidence,
                body=body,
                is_no_api=True,
            )
        if status >= 400:
            message = self._without_key(f"{status}: {excerpt(message_in(body), 160)}")
            is_transient = status in TRANSIENT_STATUSES or status >= 500
            return ProbeResult(
                "down" if is_transient else "refused",
                message,
                evidence,
                retry_after=retry_after(headers) or 0.0,
                body=body,
            )
        if not is_turn:
            return ProbeResult("accepted", f"{status}", evidence, body=body)
        stream_type = SERVER_DIALECTS[self.target.dialect].stream_type
        if streams and content_type != stream_type:
            return ProbeResult(
                "refused", f"expected {stream_type}, got {content_type or 'no content type'}", evidence, body=body
            )
        try:
            response = self._decode_stream(body) if streams else self._decode_body(body)
        except ApiError as error:
            return ProbeResult(
                "refused",
                self._without_key(f"{status} with an error in the body: {excerpt(error.message, 160)}"),
                evidence,
                body=body,
            )
        if response.status == ResponseStatus.FAILED:
            reason = response.error.message if response.error else "no reason given"
            return ProbeResult(
                "refused",
                self._without_key(f"{status} with an error in the body: {excerpt(reason, 160)}"),
                evidence,
                body=body,
            )
        return ProbeResult("accepted", "answered", evidence, response, body=body)

    def _decode_body(self, body: bytes) -> Response:
        request = Request(model=self.target.model)
        server_dialect = SERVER_DIALECTS[self.target.dialect]
        return server_dialect.response_to_hub(
            body, request, _initial_response(request), SYSTEM_STAMPS, self.target.base_profile.wire
        )[0]

    def _decode_stream(self, body: bytes) -> Response:
        request = Request(model=self.target.model, stream=True)
        dialect = SERVER_DIALECTS[self.target.dialect]
        reader = dialect.events_to_hub(
            request, _initial_response(request), SYSTEM_STAMPS, self.target.base_profile.wire
        )
        frames = FRAME_DECODERS[dialect.framing]()
        fold = ResponseFold()
        for frame in [*frames.feed(body), *frames.finish()]:
            for event in reader.feed(frame):
                fold.feed(event)
        for event in reader.finish():
            fold.feed(event)
        if reader.error is not None:
            raise reader.error
        return fold.response

    def _without_key(self, text: str) -> str:
        return text.replace(self.target.key, "[key]") if self.target.key else text


def message_in(body: bytes) -> str:
    """Return the message of an error from one of the usual fields; else the whole body."""
    try:
        error = decode_json(body)
    except msgspec.DecodeError:
        error = None
    match error:
        case (
            {"error": {"message": str(message)}}
            | {"error": str(message)}
            | {"message": str(message)}
            | {"detail": str(message)}
        ):
            return message
        case _:
            return body.decode("utf-8", "replace")


def _initial_response(request: Request) -> Response:
    return make_initial_response(request, id="resp_probe", created_at=0)


MAX_BODY_BYTES: Final = 16 * 1024 * 1024
#: Statuses that may be temporary and do not concern the form of the request.
TRANSIENT_STATUSES: Final = frozenset({401, 408, 425, 429})
FAULT_MESSAGES: Final = {
    "upstream_unavailable": "the server cannot be reached",
    "upstream_timeout": "the server did not answer in time",
    "upstream_disconnected": "the server closed the connection before the end of its answer",
}
