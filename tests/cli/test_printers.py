"""Printing an answer on a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.cli.network import USAGE, Terminal, says
from tests.generate.events import counting_stamps, lives

from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.printers import EventPrinter, Printer, TextPrinter
from antiphon.cli.terminal import StatusLine, printable
from antiphon.protocol.codec import encode
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.items import WebSearchCall
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import OutputTokensDetails, make_initial_response
from antiphon.protocol.writer import ResponseWriter

Write = Callable[[ResponseWriter], None]


def _events(write: Write) -> list[StreamEvent]:
    collector = EventCollector()
    request = Request(model="m", input="hi")
    write(ResponseWriter(make_initial_response(request, id="resp_1", created_at=1), collector, counting_stamps()))
    return collector.events


def _print(printer: Printer, events: list[StreamEvent], losses: tuple[str, ...] = ()) -> None:
    outcome = ResponseOutcome()
    known_losses = Losses()
    for path in losses:
        known_losses.add(path, "lost in the gateway")
    printer.begin(known_losses)
    for event in events:
        printer.show_event(event)
        outcome.add_event(event)
    printer.finish(outcome)


def _shown(
    write: Write,
    out: io.StringIO,
    err: io.StringIO,
    environ: dict[str, str] | None = None,
    losses: tuple[str, ...] = (),
) -> tuple[str, str]:
    _print(TextPrinter(out, err, environ or {}, StatusLine(err, {})), _events(write), losses)
    return out.getvalue(), err.getvalue()


def _thinks(writer: ResponseWriter) -> None:
    writer.add_reasoning("r", "Let me ")
    writer.add_reasoning("r", "see.")
    writer.close_item("r")
    writer.add_text("m", "Four.")
    writer.complete(USAGE)


def test_printer_writes_text_and_one_newline_to_a_pipe() -> None:
    assert _shown(says("Hel", "lo"), io.StringIO(), io.StringIO()) == ("Hello\n", "12 tokens in, 34 out\n")
    assert _shown(says("Hel", "lo\n", ""), io.StringIO(), io.StringIO()) == ("Hello\n", "12 tokens in, 34 out\n")


def test_printer_flushes_every_delta() -> None:
    flushed: list[str] = []

    class Watched(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    _shown(says("a", "b", usage=None), Watched(), io.StringIO())
    assert flushed == ["a", "ab", "ab\n"]


def test_printer_dims_reasoning_on_a_terminal() -> None:
    shown = _shown(_thinks, Terminal(), Terminal())
    assert shown == ("Four.\n", "\x1b[2mLet me \x1b[0m\x1b[2msee.\x1b[0m\n\n\x1b[2m12 tokens in, 34 out\x1b[0m\n")


def test_printer_labels_reasoning_without_colours() -> None:
    shown = _shown(_thinks, Terminal(), Terminal(), {"NO_COLOR": "1"})
    assert shown == ("Four.\n", "[reasoning] Let me see.\n\n12 tokens in, 34 out\n")


def test_printer_omits_reasoning_in_a_pipe() -> None:
    assert _shown(_thinks, io.StringIO(), io.StringIO()) == ("Four.\n", "12 tokens in, 34 out\n")


def test_printer_shows_reasoning_summaries_as_reasoning() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_summary("r", "In short", part_key=0)
        writer.add_summary("r", "and again", part_key=1)
        writer.complete()

    assert _shown(write, io.StringIO(), Terminal(), {"TERM": "dumb"}) == (
        "",
        "[reasoning] In short\n\n[reasoning] and again\n",
    )


def test_printer_separates_messages_by_a_blank_line() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_text("a", "one")
        writer.close_item("a")
        writer.add_reasoning("r", "hm")
        writer.close_item("r")
        writer.add_text("b", "two\n")
        writer.complete()

    assert _shown(write, io.StringIO(), io.StringIO()) == ("one\n\ntwo\n", "")
    assert _shown(write, io.StringIO(), Terminal(), {"NO_COLOR": "1"}) == ("one\n\ntwo\n", "\n[reasoning] hm\n")


def test_printer_shows_each_call_on_its_own_line() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_text("m", "I will look.")
        writer.close_item("m")
        writer.open_call("c", name="weather", call_id="call_1")
        writer.add_arguments("c", '{"city":\n"Lima"}')
        writer.close_item("c")
        writer.open_custom_call("p", name="patch", call_id="call_2")
        writer.add_custom_input("p", "*** Begin\n+x\x1b[2J")
        writer.close_item("p")
        writer.add_whole_item("w", WebSearchCall(id="ws_1", status="completed"))
        writer.open_extension_item("x", "acme:thing", {"id": "x_1", "status": "completed"})
        writer.add_text("n", "Done.")
        writer.complete()

    out, err = _shown(write, io.StringIO(), io.StringIO())
    assert out == "I will look.\nDone.\n"
    assert err == '→ weather({"city": "Lima"})\n→ patch: *** Begin +x[2J\n→ web_search_call\n→ acme:thing\n'


def test_printer_writes_refusals_to_standard_error() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_refusal("m", "I won't.")
        writer.complete()

    assert _shown(write, io.StringIO(), io.StringIO()) == ("", "I won't.\n")
    assert _shown(write, io.StringIO(), Terminal()) == ("", "\x1b[31mI won't.\x1b[0m\n")


def test_printer_shows_reasoning_tokens() -> None:
    usage = replace(USAGE, output_tokens_details=OutputTokensDetails(reasoning_tokens=30))
    assert (
        _shown(says("x", usage=usage), io.StringIO(), io.StringIO())[1]
        == "12 tokens in, 34 out, 30 of them reasoning\n"
    )


def test_printer_shows_losses_before_the_answer() -> None:
    """REQ-6: losses of the gateway are printed for the user."""
    shown = _shown(says("x", usage=None), io.StringIO(), io.StringIO(), losses=("tools[0]", "input[1].content[0]"))
    assert shown == ("x\n", "2 parts of the request could not be translated: tools[0], input[1].content[0]\n")


def test_event_printer_writes_one_event_per_line() -> None:
    events = _events(_thinks)
    out = io.StringIO()
    _print(EventPrinter(out, StatusLine(io.StringIO(), {})), events, ("tools[0]",))
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [json.loads(encode(event)) for event in events]


@pytest.mark.parametrize("delta", ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\rb", "\x08\x7f"])
def test_printer_removes_escape_sequences(delta: str) -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_reasoning("r", delta)
        writer.add_text("m", delta)
        writer.add_refusal("n", delta)
        writer.complete()

    shown = "".join(_shown(write, Terminal(), Terminal(), {"NO_COLOR": "1"}))
    assert printable(shown) == shown


@settings(max_examples=30)
@given(lives())
def test_printer_writes_only_text_to_standard_output(events: list[StreamEvent]) -> None:
    out = io.StringIO()
    _print(TextPrinter(out, Terminal(), {}, StatusLine(io.StringIO(), {})), events)
    text = "".join(printable(event.delta) for event in events if isinstance(event, OutputTextDelta))
    assert out.getvalue().replace("\n", "") == text.replace("\n", "")
    assert out.getvalue()[-1:] in ("", "\n")
