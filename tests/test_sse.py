"""Server-sent events: the frames are the same for any split of the bytes, and no text can forge a frame."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import sse
from antiphon.errors import UpstreamFault
from antiphon.sse import Decoder, Frame

BOM: Final = b"\xef\xbb\xbf"
# Characters that other readers treat as line endings, and one whose bytes are easily split.
ODD: Final = "\u2028\u2029\u0085\x0b\x0c\x1c\U0001f600é: "
FORGERY: Final = '\n\ndata: [DONE]\n\nevent: response.completed\r\rdata: {"forged":true}\r\n\r\n'

one_line: Final = st.text(st.sampled_from(ODD) | st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)


class Stream(NamedTuple):
    """Bytes, and the frames in them."""

    wire: bytes
    frames: list[Frame]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Unusual streams: every line ending, comments, ids and hints, values with and without their space."""
    wire, frames = draw(st.sampled_from([b"", BOM])), []
    for event, data in draw(st.lists(st.tuples(st.just("") | one_line, st.lists(one_line, max_size=3)), max_size=4)):
        named = [_field(draw, "event", event)] if event else []
        lines = [*named, *(_field(draw, "data", text) for text in data)]
        for noise in draw(
            st.lists(
                st.sampled_from([":", ": note", "id: 7", "id", "retry: 10", "database: x", "dat", " data: x"]),
                max_size=2,
            )
        ):
            lines.insert(draw(st.integers(0, len(lines))), noise)
        for line in [*lines, ""]:
            # After a CR an LF is the second half of a CRLF, so a blank line there ends in something else.
            endings = [b"\r", b"\r\n"] if not line and wire.endswith(b"\r") else [b"\n", b"\r", b"\r\n"]
            wire += line.encode() + draw(st.sampled_from(endings))
        frames += [Frame(event, "\n".join(data).encode())] if data else []
    return Stream(wire, frames)


def _field(draw: st.DrawFn, name: str, value: str) -> str:
    forms = [f"{name}: {value}"] + [f"{name}:{value}"] * (not value.startswith(" ")) + [name] * (not value)
    return draw(st.sampled_from(forms))


def fed(pieces: Iterable[bytes]) -> list[Frame]:
    decoder = Decoder()
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    return frames + decoder.finish()


def pieces(wire: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    return [wire[start:end] for start, end in pairwise(edges)]


# Any split gives the same frames


@given(streams())
def test_decoder_gives_the_same_frames_for_every_split_in_two(stream: Stream) -> None:
    for cut in range(len(stream.wire) + 1):
        assert fed(pieces(stream.wire, [cut])) == stream.frames


@given(streams(), st.lists(st.integers(0, 200), max_size=10))
def test_decoder_gives_the_same_frames_for_any_splits(stream: Stream, cuts: list[int]) -> None:
    """Two splits at one place feed no bytes at all."""
    assert fed(pieces(stream.wire, cuts)) == stream.frames


@given(streams())
def test_decoder_gives_the_same_frames_byte_by_byte(stream: Stream) -> None:
    assert fed(stream.wire[at : at + 1] for at in range(len(stream.wire))) == stream.frames


@given(streams(), st.lists(st.integers(0, 200), max_size=10))
def test_frame_is_returned_with_its_blank_line(stream: Stream, cuts: list[int]) -> None:
    """A frame does not wait for the next read: not even for the LF that may follow a CR."""
    decoder = Decoder()
    frames = [frame for piece in pieces(stream.wire, cuts) for frame in decoder.feed(piece)]
    assert frames == stream.frames
    assert decoder.finish() == []


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (b"data: a\n\ndata: b\n\n", [Frame("", b"a"), Frame("", b"b")]),
        (b"data: a\ndata:\ndata\ndata: b\n\n", [Frame("", b"a\n\n\nb")]),
        (b"data\n\n", [Frame("", b"")]),
        (b"data: \n\n", [Frame("", b"")]),
        (b"data:  a\n\n", [Frame("", b" a")]),
        (b"event: x\n\ndata: a\n\n", [Frame("", b"a")]),
        (b"event: x\nevent: y\ndata: a\n\n", [Frame("y", b"a")]),
        (b"data: a\nevent: x\n\n", [Frame("x", b"a")]),
        (b"event\ndata: a\n\n", [Frame("", b"a")]),
        (b"event: \xff\ndata: a\n\n", [Frame("\ufffd", b"a")]),
        (BOM + b"data: a\n\n" + BOM + b"data: b\n\n", [Frame("", b"a")]),
        (b"\n\n\n: x\n\n\r\r", []),
        (b"", []),
        (BOM[:2], []),
    ],
)
def test_fields_are_decoded_by_the_standard(wire: bytes, frames: list[Frame]) -> None:
    assert fed([wire]) == frames
    assert fed([wire[:1], b"", wire[1:]]) == frames


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
        (b"data: a\rdata: b\r\n\r\n", ["a\nb"]),
        (b"data: a\n\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\n\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: \r\n\r\n", [""]),
        (b": a\r\n\r\n", []),
    ],
)
def test_frames_with_crlf_are_decoded(read: bytes, wanted: list[str]) -> None:
    """The fast path of `feed` again, for servers that write CRLF."""
    decoder = Decoder()
    assert [frame.data.decode() for frame in decoder.feed(b"data: x\r\n\r\n" + read)] == ["x", *wanted]
    assert [frame.data.decode() for frame in decoder.feed(read)] == wanted
    assert decoder.finish() == []


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (b"event: m\ndata: a\n\n", ["m:a"]),
        (b"event: m\ndata: a\n\nevent: n\ndata: b\n\nevent: n\ndata: c\n\n", ["m:a", "n:b", "n:c"]),
        (b"event: m\ndata: a\ndata: b\n\nevent: n\n\n", ["m:a\nb"]),
        (b"event: m\ndata: a\n\ndata: b\n\n", ["m:a", ":b"]),
        (b"event: m\nid: 7\n\nevent: n\ndata: b\n\n", ["n:b"]),
        (b"event: \xff\ndata: a\n\nevent: \ndata: \n\n", ["\ufffd:a", ":"]),
        (b"event: m\ndata: a\r\n\r\n", ["m:a"]),
    ],
)
def test_named_frames_are_decoded(read: bytes, wanted: list[str]) -> None:
    """The fast path for servers that name their events, from the first byte on and between frames."""
    decoder = Decoder()
    for _ in range(2):
        assert [f"{frame.event}:{frame.data.decode()}" for frame in decoder.feed(read)] == wanted
    assert [frame.data for at in range(len(read)) for frame in decoder.feed(read[at : at + 1])] == [
        line.partition(":")[2].encode() for line in wanted
    ]
    assert decoder.finish() == []


def test_one_frame_per_read_is_decoded() -> None:
    """The fast path of `feed`, which is used only between frames, for exactly one frame of one data line."""
    decoder = Decoder()
    reads = [
        b"data: a\n\n",
        b"data: b\n\n",
        b"data: c\r\n\r\n",
        b"data: d\n",
        b"data: e\n\n",
        b"data: f\ndata: g\n\n",
        b"data: h\rx\n\n",
    ]
    reads += [b"event: z\n", b"data: i\n\n", b"data: j\n\n", b"data: k", b"data: l\n\n"]
    assert [[frame.event + ":" + frame.data.decode() for frame in decoder.feed(read)] for read in reads] == [
        [":a"],
        [":b"],
        [":c"],
        [],
        [":d\ne"],
        [":f\ng"],
        [":h"],
        [],
        ["z:i"],
        [":j"],
        [],
        [":kdata: l"],
    ]


# The end


json_frames: Final = st.lists(
    st.builds(
        Frame,
        st.sampled_from(["", "response.created"]),
        st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=3).map(msgspec.json.encode)
        | st.just(sse.DONE),
    ),
    max_size=3,
)


@given(json_frames, st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_truncated_stream_gives_only_whole_frames(frames: list[Frame], ending: bytes) -> None:
    wire = b"".join(
        (b"event: %b%b" % (frame.event.encode(), ending) if frame.event else b"")
        + b"data: %b" % frame.data
        + ending * 2
        for frame in frames
    )
    for end in range(len(wire) + 1):
        decoded = fed([wire[:end]])
        assert decoded == frames[: len(decoded)]
        assert len(decoded) >= wire[:end].count(ending * 2)


@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (b'data: {"a":1}\n', [Frame("", b'{"a":1}')]),
        (b'data: {"a":1}', [Frame("", b'{"a":1}')]),
        (b'data: {"a":1', []),
        (b"data: [DONE]", [Frame("", b"[DONE]")]),
        (b"data: [DON", []),
        (b"data: not json", []),
        (b"data: not json\n", [Frame("", b"not json")]),
        (b'data: {"a":\ndata: 1}', [Frame("", b'{"a":\n1}')]),
        (b'data: {"a":\ndata: 1', []),
        (b'event: x\ndata: {"a":1}', [Frame("x", b'{"a":1}')]),
        (b'data: {"a":1}\nevent: respon', [Frame("", b'{"a":1}')]),
        (b'data: {"a":1}\nda', [Frame("", b'{"a":1}')]),
        (b"event: x\n", []),
        (b"data: " + b"[" * 100_000, []),
    ],
)
def test_finish_returns_a_complete_last_frame(wire: bytes, frames: list[Frame]) -> None:
    assert fed([wire]) == frames


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b'error: {"message":"busy"}', b'{"error":{"message":"busy"}}'),
        (b'error:{"error":{"message":"busy"}}', b'{"error":{"message":"busy"}}'),
        (b"error: busy", b'{"error":{"message":"busy"}}'),
        (b"error: 7", b'{"error":{"message":"7"}}'),
    ],
)
def test_error_line_is_an_event_with_the_error_as_an_object(line: bytes, data: bytes) -> None:
    assert Decoder().feed(line + b"\n\n") == [Frame("error", data)]
    decoder = Decoder()
    assert decoder.feed(line) + decoder.finish() == [Frame("error", data)]
    assert Decoder().feed(b"data: x\n" + line + b"\n\n") == [Frame("", b"x")]


def test_finish_returns_nothing_the_second_time() -> None:
    decoder = Decoder()
    assert decoder.feed(b"event: x\ndata: 1\n") == []
    assert decoder.finish() == [Frame("x", b"1")]
    assert decoder.finish() == []


# Limits


def feed_at_most(most: int, decoder: Decoder, wire: bytes, size: int) -> None:
    """Feeds it in reads of one size; fails if another read would start after this many bytes."""
    for at in range(0, len(wire), size):
        assert at <= most
        decoder.feed(wire[at : at + size])


@given(st.integers(1, 40), st.sampled_from([b"data: ", b": ", b"event: ", b"id: "]), st.integers(1, 7))
def test_endless_line_is_refused_at_the_limit(limit: int, begin: bytes, size: int) -> None:
    decoder = Decoder(max_length=limit)
    endless = begin + b"x" * 100
    with pytest.raises(UpstreamFault) as refused:
        feed_at_most(limit, decoder, endless, size)
    assert (refused.value.code, refused.value.status) == ("upstream_invalid_response", 502)
    assert str(limit) in refused.value.message


@given(st.integers(8, 40), st.sampled_from([b"data:\n", b"data\n", b"data: x\n", b"data: \r\n"]), st.integers(1, 20))
def test_endless_event_is_refused_at_the_limit(limit: int, line: bytes, size: int) -> None:
    """Empty lines count as well: each is an LF in the data."""
    decoder = Decoder(max_length=limit)
    endless = line * 100
    with pytest.raises(UpstreamFault):
        feed_at_most(limit * len(line) + size, decoder, endless, size)


@given(st.integers(1, 9))
def test_event_size_limit_is_exact(size: int) -> None:
    """For any split, and also in the fast path of `feed`."""
    for limit, is_read in ((10, True), (9, False)):
        for opened in (b"", b": x\n\n"):
            decoder = Decoder(max_length=limit)
            decoder.feed(opened)
            wire = b"data: 1234\n\n"
            reads = [wire] if size == 9 else [wire[at : at + size] for at in range(0, len(wire), size)]
            if is_read:
                assert [frame for read in reads for frame in decoder.feed(read)] == [Frame("", b"1234")]
            else:
                with pytest.raises(UpstreamFault):
                    [decoder.feed(read) for read in reads]


def test_ignored_lines_are_not_buffered() -> None:
    decoder = Decoder(max_length=20)
    for _ in range(100):
        assert decoder.feed(b": comment\nid: 1\nretry: 5\n") == []
    assert decoder.feed(b"data: x\n\n") == [Frame("", b"x")]


def test_long_line_byte_by_byte_is_decoded_in_linear_time() -> None:
    """Otherwise this test alone would copy 10 GB."""
    data = b"x" * 100_000
    decoder = Decoder()
    for at in range(len(data)):
        decoder.feed(data[at : at + 1])
    decoder.feed(b"\ndata: ")
    for at in range(len(data)):
        decoder.feed(data[at : at + 1])
    assert decoder.feed(b"\n\n") == [Frame("", data)]


# Writing


@given(event=one_line, text=st.text())
@settings(max_examples=40)
def test_encoded_frames_are_decoded(event: str, text: str) -> None:
    data = msgspec.json.encode(text + FORGERY)
    assert fed([sse.encode_frame(event, data)]) == [Frame(event, data)]
    assert fed([sse.encode_comment(), sse.encode_data(data), sse.encode_comment(text), sse.DONE_FRAME]) == [
        Frame("", data),
        Frame("", sse.DONE),
    ]


@given(st.text(max_size=10))
def test_text_cannot_forge_an_event(text: str) -> None:
    """Not in JSON, where a line ending is escaped; not in a comment; not in a name that an upstream chose."""
    data = json.dumps({"delta": text + FORGERY}, ensure_ascii=False).encode()
    wire = sse.encode_comment(text + FORGERY) + sse.encode_frame("response." + text + FORGERY, data)
    (frame,) = fed([wire])
    assert frame.data == data
    assert frame.event.startswith("response.")


@pytest.mark.parametrize("value", [{"a": [1, 2]}, []])
def test_multi_line_json_is_encoded_on_one_line(value: Any) -> None:
    """HTTP-3: the data is one line, although the raw bytes of an unknown item may have more (ITEM-5)."""
    pretty = json.dumps(value, indent=1).replace("\n", "\r\n").encode()
    for wire in (sse.encode_frame("x", pretty), sse.encode_data(pretty)):
        (frame,) = fed([wire])
        assert json.loads(frame.data) == value
        assert wire.count(b"data:") == 1
        assert b"\r" not in wire


def test_encoded_frame_has_the_form_of_the_specification() -> None:
    """HTTP-3, HTTP-4, HTTP-5, HTTP-7."""
    assert sse.encode_frame("response.created", b"{}") == b"event: response.created\ndata: {}\n\n"
    assert sse.encode_data(b"{}") == b"data: {}\n\n"
    assert sse.DONE_FRAME == b"data: [DONE]\n\n"
    assert sse.encode_comment("alive") == b": alive\n\n"


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ([], [("message_stop", b"{}")]),
        ([("message_delta", b"{}")], [("message_stop", b"{}")]),
        ([], [("response.completed", b"{}"), ("", sse.DONE)]),
        ([("", b"{}"), ("", b"{}")], [("", sse.DONE)]),
        ([], [("", sse.DONE)]),
    ],
)
def test_piece_is_inserted_before_the_terminal_event(
    before: list[tuple[str, bytes]], end: list[tuple[str, bytes]]
) -> None:
    """F-4: `[DONE]` is the terminal event only of streams whose events have no names."""
    first, last = (b"".join(sse.encode(Frame(name, data)) for name, data in frames) for frames in (before, end))
    assert sse.insert_before_end(first + last, b": x\n\n") == first + b": x\n\n" + last
