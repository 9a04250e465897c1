"""`trace/records`: one record per line, bytes unchanged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.losses import Loss
from antiphon.trace.records import (
    AnyTraceRecord,
    ClientRequest,
    LossList,
    OmittedData,
    RawData,
    TraceNote,
    UpstreamPiece,
    decode_record,
    encode_record,
)


@settings(max_examples=30)
@given(st.binary())
def test_record_bytes_are_decoded_unchanged(raw: bytes) -> None:
    read = decode_record(encode_record(UpstreamPiece(at=0.5, data=RawData(raw))))
    assert isinstance(read, UpstreamPiece)
    assert (read.at, read.data.raw) == (0.5, raw)


def test_record_data_is_text_or_base64() -> None:
    assert (
        encode_record(UpstreamPiece(at=0.0, data=RawData("é".encode())))
        == '{"kind":"upstream_piece","at":0.0,"data":"é"}'.encode()
    )
    half = UpstreamPiece(at=0.0, data=RawData(b"\xc3"))
    assert encode_record(half) == b'{"kind":"upstream_piece","at":0.0,"data":{"base64":"ww=="}}'


def test_record_is_encoded_on_one_line() -> None:
    line = encode_record(ClientRequest(at=0.0, method="POST", path="/\n", headers={}, body=RawData(b"a\nb\r\n")))
    assert b"\n" not in line
    assert b"\r" not in line


@pytest.mark.parametrize(
    "record",
    [
        LossList(at=1.0, losses=[Loss("store", "not stored", "why")]),
        TraceNote(at=1.0, name="x", value=None),
        OmittedData(at=1.0, missing={"a": 3}),
    ],
)
def test_records_are_decoded_as_encoded(record: AnyTraceRecord) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("line", [b"", b"{}", b'{"kind":"other"}', b'{"kind":"upstream_piece","at":0,"data":7}'])
def test_invalid_record_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(line)
