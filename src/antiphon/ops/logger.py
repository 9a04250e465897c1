"""The log: one line for each request, as JSON or as readable text on a terminal. It has no prompts and no keys.

`RequestLog` has no field for content. Every text is cleaned before it is written: keys are masked, control characters
escaped, the length limited. Writing never raises. In an event loop, the lines of requests are written together after a
short delay; other events are written at once, after those that wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from time import time as unix_time
from typing import Final, Literal, TextIO

import msgspec

from antiphon.gateway.context import Level
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.line_width import cut_text, pad_text, terminal_width, text_width
from antiphon.redaction import MAX_NAME_LENGTH, MAX_SEARCHED_LENGTH, mask_keys

Style = Literal["json", "pretty", "auto"]
Field = str | int | float | bool | list["Field"] | None


class Logger:
    """Writes lines to a stream. `auto` is `pretty` on a terminal, else `json`."""

    def __init__(self, stream: TextIO, style: Style = "auto", *, now: Callable[[], float] = unix_time) -> None:
        self._is_terminal = is_terminal = _is_terminal(stream)
        self._stream = stream
        self._now = now
        self._is_pretty = style == "pretty" or (style == "auto" and is_terminal)
        self._has_colours = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()  # reentrant: a signal handler may log during a write
        self._waiting_entries: list[RequestLog] = []
        self._listeners: list[Callable[[RequestLog], None]] = []

    def add_listener(self, listener: Callable[[RequestLog], None]) -> None:
        """Calls `listener` with the entry of every request that has ended, when its line is written."""
        self._listeners.append(listener)

    def request(self, log_entry: RequestLog) -> None:
        """Logs a request that has ended."""
        log_entry.note_end()
        with self._lock:
            # Entries are formatted together and later, so that no answer waits for it.
            self._waiting_entries.append(log_entry)
            if len(self._waiting_entries) > 1:
                return  # a flush is scheduled already
        try:
            asyncio.get_running_loop().call_later(FLUSH_DELAY, self._flush_some)
        except RuntimeError:  # no event loop
            self.flush()

    def flush(self) -> None:
        """Writes the waiting entries, and calls the listeners with them."""
        with self._lock:
            log_entries, self._waiting_entries = self._waiting_entries, []
            self._write_requests(log_entries)

    def _flush_some(self) -> None:
        """Writes a few entries in each step of the event loop, so that no request waits for many."""
        with self._lock:
            log_entries = self._waiting_entries[:MAX_ENTRIES_PER_STEP]
            del self._waiting_entries[:MAX_ENTRIES_PER_STEP]
            if self._waiting_entries:  # first, so that an error of a listener does not stop the log
                asyncio.get_running_loop().call_soon(self._flush_some)
            self._write_requests(log_entries)

    def _write_requests(self, log_entries: list[RequestLog]) -> None:
        for listener in self._listeners:
            for log_entry in log_entries:
                listener(log_entry)
        if log_entries:
            self._write("\n".join(map(self._format_request, log_entries)))

    def _format_request(self, log_entry: RequestLog) -> str:
        level = _level_of(log_entry)
        return (
            self._pretty(log_entry.time, level, _pretty_request(log_entry, self._line_width()), is_marked=False)
            if self._is_pretty
            else _json_request(log_entry, level)
        )

    def _line_width(self) -> int | None:
        """The columns of the terminal beside the time; None if the log is not written to a terminal."""
        return terminal_width(self._stream) - CLOCK_WIDTH if self._is_terminal else None

    def event(self, name: str, /, *, level: Level = "info", **fields: object) -> None:
        """Logs an event other than a request, such as a start, a stop or a warning."""
        self._write_event(self._now(), level, name, fields, None)

    def fault(self, message: str, error: BaseException, /, **fields: object) -> None:
        """Logs an internal error with its traceback, which appears nowhere else (ERR-5)."""
        self._write_event(self._now(), "error", message, fields, "".join(traceback.format_exception(error)))

    def record(self, record: logging.LogRecord) -> None:
        """Logs a record of Python's `logging`; `extra={"fields": {…}}` adds fields."""
        fields = {"logger": record.name, **getattr(record, "fields", {})}
        error = record.exc_info[1] if record.exc_info else None
        trace = "".join(traceback.format_exception(error)) if error is not None else None
        self._write_event(record.created, _level_of_number(record.levelno), _format_message(record), fields, trace)

    def capture_logging(self) -> None:
        """Redirects Python's `logging` to this log: warnings of libraries, and `info` of `antiphon`. Errors that end a
        thread are logged too, in the same form as others: Python would print them without masking keys."""
        root = logging.getLogger()
        for handler in [handler for handler in root.handlers if isinstance(handler, _LoggingHandler)]:
            root.removeHandler(handler)
        root.addHandler(_LoggingHandler(self))
        logging.getLogger("antiphon").setLevel(logging.INFO)
        threading.excepthook = self._log_thread_failure

    def _log_thread_failure(self, failure: threading.ExceptHookArgs) -> None:
        error = failure.exc_value or failure.exc_type()
        self.fault("a thread failed inside the gateway", error, thread=failure.thread.name if failure.thread else "")

    def _write_event(
        self, timestamp: float, level: Level, message: str, fields: dict[str, object], trace: str | None
    ) -> None:
        lines = _last_lines(trace) if trace is not None else None
        self.flush()
        if not self._is_pretty:
            self._write(_json(timestamp, level, message, fields, lines))
            return
        parts = [
            _clean(message),
            *(f"{key}={_clean_value(value)}" for key, value in fields.items() if value is not None),
        ]
        trace_lines = [f"\n    {_clean(line)}" for line in lines or () if line]
        self._write(self._pretty(timestamp, level, "  ".join(parts) + "".join(trace_lines)))

    def _pretty(self, timestamp: float, level: Level, text: str, *, is_marked: bool = True) -> str:
        """Returns the line with its time. Without colours, the level stands before the text if `is_marked`."""
        clock_time = datetime.fromtimestamp(timestamp).strftime("%H:%M:%S")
        if not self._has_colours:
            mark = f"{level}: " if is_marked and level not in UNMARKED_LEVELS else ""
            return f"{clock_time} {mark}{text}"
        colour = COLOURS.get(level)
        return f"\x1b[2m{clock_time}\x1b[0m " + (f"\x1b[{colour}m{text}\x1b[0m" if colour else text)

    def _write(self, line: str) -> None:
        with self._lock, suppress(OSError, ValueError):  # a broken pipe, a closed file
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:
                self._stream.write(NON_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], line) + "\n")
            self._stream.flush()


class _LoggingHandler(logging.Handler):
    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.record(record)


def _is_terminal(stream: TextIO) -> bool:
    with suppress(ValueError):  # a closed stream
        return stream.isatty()
    return False


def _level_of(log_entry: RequestLog) -> Level:
    status = log_entry.status or 0
    if status >= 500:
        return "error"
    return "warning" if status >= 400 or log_entry.error is not None else "info"


def _level_of_number(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


def _pretty_request(log_entry: RequestLog, width: int | None) -> str:
    """A request as one line: columns, then details. If `width` is given, the line is not wider: details are dropped
    from the end, then the columns lose their padding and are cut."""
    request = f"{log_entry.method} {_clean(log_entry.path, MAX_NAME_LENGTH)}"
    model = _clean(log_entry.model or "", MAX_NAME_LENGTH)
    if log_entry.upstream:
        model = f"{model} → {_clean(log_entry.upstream, MAX_NAME_LENGTH)}"
    status, figures = str(log_entry.status or NO_STATUS), _pretty_figures(log_entry)
    columns = f"{status} {pad_text(request, REQUEST_WIDTH)} {pad_text(model, MODEL_WIDTH)} {figures}"
    result, details = _result_details(log_entry), _further_details(log_entry)
    line = ""
    for count in range(len(details), -1, -1):
        line = f"{columns}  {' · '.join((*result, *details[:count]))}".rstrip()
        if width is None or text_width(line) <= width:
            return line
    assert width is not None
    return _narrow_request(status, request, model, " · ".join((" ".join(figures.split()), *result)), width)


def _narrow_request(status: str, request: str, model: str, rest: str, width: int) -> str:
    """A request without padding. The model gets two fifths of the free columns, or what the path leaves."""
    free = max(width - text_width(f"{status}   {rest}"), 0)
    request = cut_text(request, max(free - text_width(model), free * 3 // 5))
    model = cut_text(model, free - text_width(request))
    return cut_text(" ".join(part for part in (status, request, model, rest) if part), width)


def _pretty_figures(log_entry: RequestLog) -> str:
    duration = f"{(log_entry.duration_ms or 0) / 1000:.2f} s"
    has_tokens = log_entry.input_tokens is not None or log_entry.output_tokens is not None
    tokens = f"{log_entry.input_tokens or 0}→{log_entry.output_tokens or 0} tok" if has_tokens else ""
    return f"{duration:>{DURATION_WIDTH}} {tokens:>{TOKENS_WIDTH}}"


def _result_details(log_entry: RequestLog) -> list[str]:
    """What was wrong with a request; a narrow line has it too."""
    details = []
    if log_entry.losses:
        details.append("1 loss" if log_entry.losses == 1 else f"{log_entry.losses} losses")
    if log_entry.error is not None:
        details.append(_clean(log_entry.error))
    if log_entry.client_disconnected:
        details.append("the client disconnected")
    return details


def _further_details(log_entry: RequestLog) -> list[str]:
    """The other details, the most important first."""
    details = []
    if len(log_entry.attempts) > 1:
        details.append(f"{len(log_entry.attempts)} attempts")
    if log_entry.first_event_ms is not None:
        details.append(f"first event {log_entry.first_event_ms / 1000:.2f} s")
    names = (log_entry.request_id, log_entry.owner, log_entry.response_id)
    return details + [_clean(name) for name in names if name is not None]


def _json_request(log_entry: RequestLog, level: Level) -> str:
    """The JSON line of a request. It is built by hand for speed: ids need no escaping, and escaped names are cached."""
    line = f'{{"time":"{_format_time(log_entry.time)}","level":"{level}","event":"request"'
    line += f',"request_id":"{log_entry.request_id}"'
    line += f',"method":"{log_entry.method}","path":{_quote_name(log_entry.path)}'
    if log_entry.status is not None:
        line += f',"status":{log_entry.status}'
    line += f',"duration_ms":{log_entry.duration_ms or 0:.3f}'
    if log_entry.first_event_ms is not None:
        line += f',"first_event_ms":{log_entry.first_event_ms:.3f}'
    if log_entry.owner is not None:
        line += f',"owner":{_quote_name(log_entry.owner)}'
    if log_entry.model is not None:
        line += f',"model":{_quote_name(log_entry.model)}'
    if log_entry.upstream is not None:
        line += f',"upstream":{_quote_name(log_entry.upstream)}'
    if log_entry.response_id is not None:
        id = log_entry.response_id
        line += f',"response_id":"{id}"' if id.isidentifier() else f',"response_id":{_quote(id)}'
    if log_entry.input_tokens is not None:
        line += f',"input_tokens":{log_entry.input_tokens}'
    if log_entry.output_tokens is not None:
        line += f',"output_tokens":{log_entry.output_tokens}'
    if len(log_entry.attempts) > 1:
        line += f',"attempts":{len(log_entry.attempts)}'
    line += f',"losses":{log_entry.losses}'
    if log_entry.error is not None:
        line += f',"error":{_quote_name(log_entry.error)}'
    return line + (',"client_left":true}' if log_entry.client_disconnected else "}")


def _json(timestamp: float, level: Level, event: str, fields: dict[str, object], trace: list[str] | None) -> str:
    line: dict[str, Field] = {"time": _format_time(timestamp), "level": level, "event": _clean(event, escape=False)}
    for name, value in fields.items():
        if value is not None and name not in line:
            line[name] = _convert_field(value)
    if trace is not None:
        line["exception"] = "\n".join(_clean(trace_line, escape=False) for trace_line in trace)
    return UNPRINTABLE.sub(_escape, msgspec.json.encode(line).decode())


def _format_time(timestamp: float) -> str:
    milliseconds = int(timestamp * 1000)
    return f"{_format_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _format_second(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _convert_field(value: object) -> Field:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return round(value, 3)
        case list() | tuple():
            return [_convert_field(member) for member in value]
        case _:
            return _clean(str(value), escape=False)


def _clean_value(value: object) -> str:
    return _clean(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _clean(text: str, max_length: int = MAX_SEARCHED_LENGTH, *, escape: bool = True) -> str:
    """Masks keys, limits the length, and escapes control characters. For JSON use `escape=False`: the encoder
    escapes."""
    text = (
        mask_keys(text, max_length).encode("utf-8", "backslashreplace").decode()
    )  # a lone surrogate is not valid UTF-8
    return UNPRINTABLE.sub(_escape, text) if escape else text


def _last_lines(trace: str) -> list[str]:
    """The last lines of a traceback, up to `MAX_TRACE` characters: the error is at its end. Lines are not cut at their
    start, where the name of a key may be, which masking needs."""
    lines = trace.split("\n")
    fitting = sum(size <= MAX_TRACE for size in accumulate(len(line) + 1 for line in reversed(lines)))
    return lines if fitting == len(lines) else ["…", *lines[-max(fitting, MIN_TRACE_LINES) :]]


def _quote_name(text: str) -> str:
    """A text that repeats, such as a path, a model or an owner, as JSON. Short ones are cached."""
    return _cached_quote(text) if len(text) < MAX_CACHED_LENGTH else _quote(text)


def _quote(text: str) -> str:
    return UNPRINTABLE.sub(_escape, msgspec.json.encode(_clean(text, MAX_NAME_LENGTH, escape=False)).decode())


_cached_quote: Final = lru_cache(maxsize=512)(_quote)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().strip()
    except FORMATTING_ERRORS:
        return str(record.msg)


# The arguments of a record do not fit its format, or cannot be converted to text.
FORMATTING_ERRORS: Final = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RuntimeError)
FLUSH_DELAY: Final = 0.02  # seconds that the line of a request may wait
MAX_ENTRIES_PER_STEP: Final = 32
MAX_TRACE: Final = 8_000
MIN_TRACE_LINES: Final = 2  # the message, and the empty text after its newline
MAX_CACHED_LENGTH: Final = 200
# Columns of a pretty line; those of the request and the model fit usual ones.
CLOCK_WIDTH: Final = 9  # the time and a space
REQUEST_WIDTH: Final = 25
MODEL_WIDTH: Final = 16
DURATION_WIDTH: Final = 7
TOKENS_WIDTH: Final = 12
NO_STATUS: Final = "---"  # the client disconnected before an answer
UNMARKED_LEVELS: Final = ("debug", "info")
COLOURS: Final[dict[str, str]] = {"debug": "2", "warning": "33", "error": "31"}
# Characters that move the cursor of a terminal, end a line, or change the direction of text.
UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
NON_ASCII: Final = re.compile(r"[^\x00-\x7f]")
