"""The log: one line a request, JSON for machines or a pretty line on a terminal. No prompt and no key is ever in it.

`RequestLog` has places for what may be known of a request and none for what was said in it. Every text is cleaned on the way out:
keys masked, control characters escaped, length bounded. Writing never fails: a log that nobody reads must not end an answer.
Where an event loop runs, lines of requests are written together, a moment later; everything else at once, and after them.
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

from antiphon.dialects.common.upstream_errors import MAX_MATCHED, MAX_NAME, mask_keys
from antiphon.gateway.context import Level
from antiphon.gateway.request_log import RequestLog

Style = Literal["json", "pretty", "auto"]
Field = str | int | float | bool | list["Field"] | None


class Logger:
    """Writes lines to a stream; `auto` is pretty on a terminal and JSON elsewhere."""

    def __init__(self, stream: TextIO, style: Style = "auto", *, now: Callable[[], float] = unix_time) -> None:
        is_terminal = _is_terminal(stream)
        self._stream = stream
        self._now = now
        self._is_pretty = style == "pretty" or (style == "auto" and is_terminal)
        self._has_colours = is_terminal and not os.environ.get("NO_COLOR")
        self._lock = threading.RLock()  # a signal may come, and have something to say, in the middle of a line
        self._waiting: list[RequestLog] = []
        self._listeners: list[Callable[[RequestLog], None]] = []

    def add_listener(self, listener: Callable[[RequestLog], None]) -> None:
        """From here on `listener` is told of every request that is over, as the log is: together with others, a moment later."""
        self._listeners.append(listener)

    def request(self, log_entry: RequestLog) -> None:
        """One request is over."""
        log_entry.note_end()
        with self._lock:
            # What is made of it is made with the others, away from whoever waits for an answer, and where all but the first of them
            # find the code at hand.
            self._waiting.append(log_entry)
            if len(self._waiting) > 1:
                return  # somebody will be here in a moment
        try:
            asyncio.get_running_loop().call_later(MOMENT, self.flush)
        except RuntimeError:  # no event loop to come back in
            self.flush()

    def flush(self) -> None:
        """Writes what waits, and tells those who want to hear of it."""
        with self._lock:
            if self._waiting:
                log_entries, self._waiting = self._waiting, []
                for listener in self._listeners:
                    for log_entry in log_entries:
                        listener(log_entry)
                self._write("\n".join(map(self._formed, log_entries)))

    def _formed(self, log_entry: RequestLog) -> str:
        level = _level_of(log_entry)
        return self._pretty(log_entry.time, level, _told(log_entry)) if self._is_pretty else _line_of(log_entry, level)

    def event(self, name: str, /, *, level: Level = "info", **fields: object) -> None:
        """Something other than a request: a start, a stop, a warning."""
        self._say(self._now(), level, name, fields, None)

    def fault(self, message: str, error: BaseException, /, **fields: object) -> None:
        """A fault of ours, with the whole of its trace: it stands in the log and nowhere else (ERR-5)."""
        self._say(self._now(), "error", message, fields, "".join(traceback.format_exception(error)))

    def record(self, record: logging.LogRecord) -> None:
        """What a library has to say, through Python's `logging`; `extra={"fields": {…}}` adds fields."""
        fields = {"logger": record.name, **getattr(record, "fields", {})}
        error = record.exc_info[1] if record.exc_info else None
        trace = "".join(traceback.format_exception(error)) if error is not None else None
        self._say(record.created, _level_of_number(record.levelno), _message(record), fields, trace)

    def capture_logging(self) -> None:
        """From here on, what libraries tell Python's `logging` is written here: their warnings, and information of our own."""
        root = logging.getLogger()
        for handler in [handler for handler in root.handlers if isinstance(handler, _Records)]:
            root.removeHandler(handler)
        root.addHandler(_Records(self))
        logging.getLogger("antiphon").setLevel(logging.INFO)

    def _say(self, moment: float, level: Level, said: str, fields: dict[str, object], trace: str | None) -> None:
        lines = _last_lines(trace) if trace is not None else None
        self.flush()
        if not self._is_pretty:
            self._write(_json(moment, level, said, fields, lines))
            return
        words = [_clean(said), *(f"{key}={_clean_text(value)}" for key, value in fields.items() if value is not None)]
        below = [f"\n    {_clean(line)}" for line in lines or () if line]
        self._write(self._pretty(moment, level, "  ".join(words) + "".join(below)))

    def _pretty(self, moment: float, level: Level, said: str) -> str:
        at = datetime.fromtimestamp(moment).strftime("%H:%M:%S")
        if not self._has_colours:
            return f"{at} {said}" if level in QUIET else f"{at} {level}: {said}"
        colour = COLOURS.get(level)
        return f"\x1b[2m{at}\x1b[0m " + (f"\x1b[{colour}m{said}\x1b[0m" if colour else said)

    def _write(self, line: str) -> None:
        with self._lock, suppress(OSError, ValueError):  # a broken pipe, a closed file
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:
                self._stream.write(BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], line) + "\n")
            self._stream.flush()


class _Records(logging.Handler):
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


def _told(log_entry: RequestLog) -> str:
    """A request in words, the most interesting first."""
    path = _clean(log_entry.path, MAX_NAME)
    words = [f"{log_entry.method} {path} {log_entry.status or 'unanswered'}", f"{(log_entry.duration_ms or 0) / 1000:.2f} s"]
    if log_entry.first_event_ms is not None:
        words.append(f"first event {log_entry.first_event_ms / 1000:.2f} s")
    if log_entry.model is not None:
        model = _clean(log_entry.model, MAX_NAME)
        words.append(f"{model} → {_clean(log_entry.upstream, MAX_NAME)}" if log_entry.upstream else model)
    if log_entry.input_tokens is not None or log_entry.output_tokens is not None:
        words.append(f"{log_entry.input_tokens or 0} tokens in, {log_entry.output_tokens or 0} out")
    if log_entry.losses:
        words.append("1 loss" if log_entry.losses == 1 else f"{log_entry.losses} losses")
    if log_entry.error is not None:
        words.append(log_entry.error)
    if log_entry.client_disconnected:
        words.append("the client left")
    words += [word for word in (log_entry.owner, log_entry.response_id, log_entry.request_id) if word is not None]
    return " · ".join(map(_clean, words))


def _line_of(log_entry: RequestLog, level: Level) -> str:
    """The line that is written for every request, and so by hand: ids are our own making, names repeat."""
    said = f'{{"time":"{_time(log_entry.time)}","level":"{level}","event":"request","request_id":"{log_entry.request_id}"'
    said += f',"method":"{log_entry.method}","path":{_name(log_entry.path)}'
    if log_entry.status is not None:
        said += f',"status":{log_entry.status}'
    said += f',"duration_ms":{log_entry.duration_ms or 0:.3f}'
    if log_entry.first_event_ms is not None:
        said += f',"first_event_ms":{log_entry.first_event_ms:.3f}'
    if log_entry.owner is not None:
        said += f',"owner":{_name(log_entry.owner)}'
    if log_entry.model is not None:
        said += f',"model":{_name(log_entry.model)}'
    if log_entry.upstream is not None:
        said += f',"upstream":{_name(log_entry.upstream)}'
    if log_entry.response_id is not None:
        id = log_entry.response_id
        said += f',"response_id":"{id}"' if id.isidentifier() else f',"response_id":{_quoted(id)}'
    if log_entry.input_tokens is not None:
        said += f',"input_tokens":{log_entry.input_tokens}'
    if log_entry.output_tokens is not None:
        said += f',"output_tokens":{log_entry.output_tokens}'
    said += f',"losses":{log_entry.losses}'
    if log_entry.error is not None:
        said += f',"error":{_name(log_entry.error)}'
    return said + (',"client_left":true}' if log_entry.client_disconnected else "}")


def _json(moment: float, level: Level, event: str, fields: dict[str, object], trace: list[str] | None) -> str:
    line: dict[str, Field] = {"time": _time(moment), "level": level, "event": _clean(event, escape=False)}
    for name, value in fields.items():
        if value is not None and name not in line:
            line[name] = _field(value)
    if trace is not None:
        line["exception"] = "\n".join(_clean(each, escape=False) for each in trace)
    return UNPRINTABLE.sub(_escaped, msgspec.json.encode(line).decode())


def _time(moment: float) -> str:
    milliseconds = int(moment * 1000)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _field(value: object) -> Field:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return round(value, 3)
        case list() | tuple():
            return [_field(member) for member in value]
        case _:
            return _clean(str(value), escape=False)


def _clean_text(value: object) -> str:
    return _clean(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _clean(text: str, most: int = MAX_MATCHED, *, escape: bool = True) -> str:
    """`text` as it may stand in a log. In JSON the escaping is left to the encoder, which knows how it is spelled there."""
    text = mask_keys(text, most).encode("utf-8", "backslashreplace").decode()  # a lone half of a pair is no UTF-8
    return UNPRINTABLE.sub(_escaped, text) if escape else text


def _last_lines(trace: str) -> list[str]:
    """The lines of a trace, the last ones if there are too many: its end says what happened. No line is cut at its beginning, where
    it may say that what follows is a key."""
    lines = trace.split("\n")
    fitting = sum(size <= MAX_TRACE for size in accumulate(len(line) + 1 for line in reversed(lines)))
    return lines if fitting == len(lines) else ["…", *lines[-max(fitting, FEWEST_LINES) :]]


def _name(text: str) -> str:
    """A text that comes again and again, in quotation marks: a path, the name of a model or an owner."""
    return _quoted_once(text) if len(text) < MAX_REPEATED else _quoted(text)


def _quoted(text: str) -> str:
    return UNPRINTABLE.sub(_escaped, msgspec.json.encode(_clean(text, MAX_NAME, escape=False)).decode())


_quoted_once: Final = lru_cache(maxsize=512)(_quoted)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().strip()
    except Exception:  # its arguments do not fit its format: what there is, is better than nothing
        return str(record.msg)


MOMENT: Final = 0.02  # seconds that the line of a request may wait for others
MAX_TRACE: Final = 8_000
FEWEST_LINES: Final = 2  # the message, and nothing behind its line end
MAX_REPEATED: Final = 200
QUIET: Final = ("debug", "info")
COLOURS: Final[dict[str, str]] = {"debug": "2", "warning": "33", "error": "31"}
# What could move a terminal's cursor, end a line where none ends, or turn the direction of what follows.
UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
