"""TLS as bytes in and bytes out, without a socket.

The standard library's `ssl` does the protocol and the verification. The event loop's TLS layer is not used: it reads up
to 256 KiB at a time, buffers twice as much for a slow reader, and cannot tell whether the end of a stream was
announced.
"""

from __future__ import annotations

import ssl
from typing import Final, Literal

from antiphon.errors import UpstreamFault

TlsState = Literal["open", "done", "broken"]


def trusted_context() -> ssl.SSLContext:
    """A context that verifies certificates and host names against the system's authorities, or those in
    `SSL_CERT_FILE`."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsSession:
    """The client side of a TLS connection. After every call, `take_outgoing` has the bytes for the server."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def do_handshake(self, received: memoryview | bytes) -> bool:
        """Continues the handshake; True once it is done. Raises `ssl.SSLError` if the server is not trusted."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def decrypt(self, received: memoryview) -> tuple[bytes, TlsState]:
        """Decrypts `received`; returns the data and the state: open, ended properly, or broken."""
        self._incoming.write(received)
        parts: list[bytes] = []
        state: TlsState = "done"
        try:
            while part := self._tls.read(MAX_RECORD_BYTES):  # empty: the other side announced its end
                parts.append(part)
        except ssl.SSLWantReadError:
            state = "open"
        except ssl.SSLError:
            state = "broken"
        return b"".join(parts), state

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Encrypts all of `data`."""
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[self._tls.write(remaining) :]
        return self.take_outgoing()

    def take_outgoing(self) -> bytes:
        return self._outgoing.read()


def tls_fault(error: ssl.SSLError) -> UpstreamFault:
    """The fault for a failed handshake; names no address."""
    reason = "the handshake was interrupted; does the upstream use TLS on this port?"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = CERTIFICATE_PROBLEMS.get(error.verify_code, UNKNOWN_AUTHORITY)
    return UpstreamFault(f"no TLS connection to the upstream: {reason}", code="upstream_unavailable")


MAX_RECORD_BYTES: Final = 16 * 1024  # the largest TLS record
UNKNOWN_AUTHORITY: Final = (
    "its certificate was not signed by an authority that this machine trusts; SSL_CERT_FILE can name others"
)
# By the numbers of X509_verify_cert.
CERTIFICATE_PROBLEMS: Final = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    62: "its certificate is for another host name",
    64: "its certificate is for another address",
}
