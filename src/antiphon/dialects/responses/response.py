"""Translates responses that are not streamed. A server's response is normalized like its stream (STR-14)."""

from __future__ import annotations

from antiphon.dialects.responses.errors import decode_error, error_in_answer
from antiphon.dialects.responses.normalizing import ResponseNormalizer
from antiphon.dialects.responses.server_shapes import ServerResponse, decode_struct, require_valid_json
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: ResponsesWire = ResponsesWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Translate a server's response. Raises its error, or `UpstreamFault` if the body is no response object."""
    server_response = decode_struct(require_valid_json(body), ServerResponse)
    if server_response.output is None and server_response.status is None:
        error = decode_error(server_response.error)
        if error is not None:
            raise error_in_answer(error)
        raise UpstreamFault("the answer of the upstream is not a response object", code="upstream_invalid_response")
    normalizer = ResponseNormalizer(request, initial_response, stamps, wire)
    normalizer.on_response_ended(server_response, server_response.status or ResponseStatus.COMPLETED)
    return normalizer.writer.response, normalizer.losses


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """HTTP-2: encode the response."""
    del request  # part of the common signature; unused here
    return codec.encode(response), Losses()
