"""Print an answer while it is streamed: as text for people, or as events for scripts.

As text, standard output gets only the model's answer. Standard error gets reasoning (dimmed, and only on a terminal),
tool calls, refusals and usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TextIO

from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.terminal import StatusLine, TextStyle, TextStyler, one_line, printable, printable_json
from antiphon.protocol.codec import encode
from antiphon.protocol.events import (
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    SummaryTextDelta,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, McpCall, Message, Reasoning, UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Usage


class Printer(Protocol):
    def begin(self, losses: Losses) -> None:
        """Print the losses that are known before the first event."""
        ...

    def show_event(self, event: StreamEvent) -> None: ...

    def finish(self, outcome: ResponseOutcome) -> None:
        """End the output, after the last event or a fault."""
        ...


class EventPrinter:
    """Prints every event as JSON, one per line."""

    def __init__(self, out: TextIO, status: StatusLine) -> None:
        self._out = out
        self._status = status

    def begin(self, losses: Losses) -> None:
        pass  # scripts can read losses from the trace

    def show_event(self, event: StreamEvent) -> None:
        self._status.clear()
        self._out.write(f"{printable_json(encode(event))}\n")
        self._out.flush()

    def finish(self, outcome: ResponseOutcome) -> None:
        pass


class TextPrinter:
    """Prints the text while it is streamed, and everything else on standard error."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str],
        status: StatusLine,
        shown_losses: set[str] | None = None,
    ) -> None:
        """Losses in `shown_losses` are not shown again; new ones are added to it."""
        self._out = out
        self._err = err
        self._shown_losses = set() if shown_losses is None else shown_losses
        self._status = status
        self._paint = TextStyler(err, environ)
        self._is_watched = err.isatty()
        self._block: str | None = None  # the part of the answer that is currently written
        self._open_line: TextIO | None = None  # the stream whose last line is not ended yet
        self._has_text = False

    def begin(self, losses: Losses) -> None:
        new_losses = [loss for loss in losses if loss.path not in self._shown_losses]
        self._shown_losses.update(loss.path for loss in new_losses)
        if new_losses:
            count = f"{len(new_losses)} parts" if len(new_losses) > 1 else "1 part"
            paths = ", ".join(one_line(loss.path) for loss in new_losses)
            reason = f"; {one_line(new_losses[0].why)} for the reason" if new_losses[0].why else ""
            self._write_line("yellow", f"{count} of the request could not be translated: {paths}{reason}")

    def show_event(self, event: StreamEvent) -> None:
        match event:
            case OutputTextDelta(item_id=id, content_index=index, delta=delta):
                self._write(self._out, f"text {id} {index}", printable(delta))
            case ReasoningDelta(item_id=id, content_index=index, delta=delta):
                self._write_reasoning(f"reasoning {id} {index}", printable(delta))
            case SummaryTextDelta(item_id=id, summary_index=index, delta=delta):
                self._write_reasoning(f"summary {id} {index}", printable(delta))
            case RefusalDelta(item_id=id, content_index=index, delta=delta):
                self._write(self._err, f"refusal {id} {index}", printable(delta), "red")
            case ItemDone(item=item) if item is not None and not isinstance(item, Message | Reasoning):
                self._write_line("yellow", f"→ {_describe_call(item)}")
            case _:
                pass  # start and end events of content that is printed by its deltas

    def finish(self, outcome: ResponseOutcome) -> None:
        self._end_line()
        if outcome.usage is not None:
            self._write_line("dim", _describe_usage(outcome.usage))

    def _write_reasoning(self, block: str, text: str) -> None:
        if self._is_watched:
            self._write(self._err, block, text, "dim", heading="" if self._paint.has_colours else "[reasoning] ")

    def _write(self, stream: TextIO, block: str, text: str, style: TextStyle | None = None, heading: str = "") -> None:
        """Write a piece of a block. Blocks are separated by an empty line."""
        if not text:
            return
        self._status.clear()
        if block != self._block:
            self._begin_block(stream, block)
            stream.write(heading)
        stream.write(self._paint(style, text) if style else text)
        stream.flush()
        self._open_line = None if text.endswith("\n") else stream

    def _begin_block(self, stream: TextIO, block: str) -> None:
        self._end_line()
        if self._block is not None:
            # The empty line between reasoning and answer goes to standard error, so that a pipe begins with the answer.
            separator_stream = self._out if stream is self._out and self._has_text else self._err
            separator_stream.write("\n")
            separator_stream.flush()
        self._has_text = self._has_text or stream is self._out
        self._block = block

    def _write_line(self, style: TextStyle, text: str) -> None:
        """Write a separate line to standard error."""
        self._status.clear()
        self._end_line()
        self._err.write(f"{self._paint(style, text)}\n")
        self._err.flush()
        self._block = None

    def _end_line(self) -> None:
        if self._open_line is not None:
            self._open_line.write("\n")
            self._open_line.flush()
            self._open_line = None


def _describe_call(item: Item) -> str:
    """Describe a tool call on one line."""
    match item:
        case FunctionCall() | McpCall():
            return one_line(f"{item.name}({item.arguments})")
        case CustomToolCall():
            return one_line(f"{item.name}: {item.input}")
        case UnknownItem():
            return one_line(item.kind)
        case _:
            return str(item.__struct_config__.tag)


def _describe_usage(usage: Usage) -> str:
    reasoning_tokens = usage.output_tokens_details.reasoning_tokens
    return f"{usage.input_tokens} tokens in, {usage.output_tokens} out" + (
        f", {reasoning_tokens} of them reasoning" if reasoning_tokens else ""
    )
