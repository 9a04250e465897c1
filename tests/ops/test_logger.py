"""The log: the content of a line, what it never contains, and that writing it cannot fail."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.line_width import text_width
from antiphon.ops.logger import MAX_ENTRIES_PER_STEP, Logger

pytestmark = pytest.mark.without_coverage
NOON = 1_700_000_000.25
KEY = "sk-abcdefghijklmnop"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class BrokenPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(f"nobody reads {len(text)} characters")


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    """Python's `logging` is global: its state is restored afterwards."""
    root, own = logging.getLogger(), logging.getLogger("antiphon")
    handlers, level = list(root.handlers), own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


def a_line(**changes: Any) -> RequestLog:
    fields: dict[str, Any] = {"request_id": "req_1", "method": "POST", "path": "/v1/responses", "time": NOON}
    return RequestLog(**(fields | changes))


def written(style: Any = "json", **changes: Any) -> str:
    stream = io.StringIO()
    Logger(stream, style).request(a_line(**changes))
    return stream.getvalue()


def parsed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_request_is_logged_as_one_json_line_with_all_fields() -> None:
    line = written(
        status=200,
        duration_ms=1234.5678,
        first_event_ms=300.0,
        owner="alice",
        model="mock-1",
        upstream="lab",
        response_id="resp_1",
        input_tokens=12,
        output_tokens=0,
        losses=2,
        client_disconnected=True,
    )
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "event": "request",
        "request_id": "req_1",
        "method": "POST",
        "path": "/v1/responses",
        "status": 200,
        "duration_ms": 1234.568,
        "first_event_ms": 300.0,
        "owner": "alice",
        "model": "mock-1",
        "upstream": "lab",
        "response_id": "resp_1",
        "input_tokens": 12,
        "output_tokens": 0,
        "losses": 2,
        "client_left": True,
    }


def test_unset_fields_are_not_logged() -> None:
    assert set(json.loads(written(duration_ms=1.0))) == {
        "time", "level", "event", "request_id", "method", "path", "duration_ms", "losses"
    }  # fmt: skip


def test_durations_are_measured_once() -> None:
    line = a_line()
    line.note_first_event()
    first = line.first_event_ms
    assert first is not None
    assert first >= 0
    line.note_first_event()
    assert line.first_event_ms == first
    line.note_end()
    last = line.duration_ms
    assert last is not None
    assert last >= first
    line.note_end()
    assert line.duration_ms == last


@pytest.mark.parametrize(
    ("status", "error", "level"),
    [
        (200, None, "info"),
        (None, None, "info"),
        (404, "not_found", "warning"),
        (200, "upstream_timeout", "warning"),
        (502, "x", "error"),
    ],
)
def test_log_level_follows_status_and_error(status: int | None, error: str | None, level: str) -> None:
    assert json.loads(written(status=status, error=error))["level"] == level


def test_pretty_line_has_all_fields_in_order() -> None:
    line = written(
        "pretty",
        status=200,
        duration_ms=1234.0,
        first_event_ms=300.0,
        owner="alice",
        model="mock-1",
        upstream="lab",
        response_id="resp_1",
        input_tokens=12,
        output_tokens=34,
        losses=2,
        client_disconnected=True,
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d .*\n", line)
    assert line[9:-1] == (
        "200 POST /v1/responses        mock-1 → lab      1.23 s    12→34 tok  2 losses · the client disconnected"
        " · first event 0.30 s · req_1 · alice · resp_1"
    )


def test_pretty_line_of_a_refusal_has_its_code() -> None:
    line = written("pretty", status=404, duration_ms=1.0, error="model_not_found", model="nobody", losses=1)
    assert line[9:-1] == (
        "404 POST /v1/responses        nobody            0.00 s               1 loss · model_not_found · req_1"
    )


def test_pretty_line_of_a_disconnected_client_has_no_status() -> None:
    assert "--- POST /v1/responses " in written("pretty", client_disconnected=True, output_tokens=3)


LONG: dict[str, Any] = {
    "path": "/v1beta/models/gemini-2.5-flash-preview-with-a-long-name:streamGenerateContent",
    "model": "vendor/模型-with-a-rather-long-name",
    "upstream": "the-upstream-of-the-laboratory",
    "status": 502,
    "duration_ms": 123_456.0,
    "input_tokens": 1_234_567,
    "output_tokens": 89_012,
    "losses": 3,
    "error": "upstream_unavailable",
    "owner": "alice",
    "response_id": "resp_1",
}


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int, **changes: Any) -> str:
    """The line on a terminal without colours."""
    monkeypatch.setattr("antiphon.ops.logger.terminal_width", lambda _: width)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Logger(stream).request(a_line(**changes))
    return stream.getvalue()


@pytest.mark.parametrize("width", [*range(1, 131), 250])
def test_line_of_a_request_is_not_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    for changes in (LONG, {}, {"status": 200, "model": "mock-1", "upstream": "lab", "output_tokens": 3}):
        line = on_terminal(monkeypatch, width, **changes)
        assert line.count("\n") == 1
        assert text_width(line[:-1]) <= max(width, 9)  # the time is not cut


def test_line_of_a_request_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"status": 200, "duration_ms": 1234.0, "model": "mock-1", "upstream": "lab", "owner": "alice"}
    line = on_terminal(monkeypatch, 80, **fields, input_tokens=12, output_tokens=34, response_id="resp_1")
    assert line[9:-1] == "200 POST /v1/responses        mock-1 → lab      1.23 s    12→34 tok"
    line = on_terminal(monkeypatch, 80, **{**fields, "status": 502, "error": "upstream_unavailable"})
    assert line[9:-1] == "502 POST /v1/responses mock-1 → lab 1.23 s · upstream_unavailable"


def test_narrow_line_has_losses_and_error_and_the_beginnings_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    line = on_terminal(monkeypatch, 100, **LONG)
    assert line[9:-1] == ("502 POST /v1beta/m… vendor/模… 123.46 s 1234567→89012 tok · 3 losses · upstream_unavailable")


def test_pretty_line_that_is_not_on_a_terminal_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.ops.logger.terminal_width", lambda _: 20)
    line = written("pretty", **LONG)
    assert LONG["path"] in line
    assert line.endswith("3 losses · upstream_unavailable · req_1 · alice · resp_1\n")


def test_dumb_terminal_gets_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    Logger(stream).request(a_line(status=502, error="x"))
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_control_characters_are_escaped(style: Any) -> None:
    nasty = "a\nb\r\x1b[2J\x7f\x9b31m\u2028\u202e\x00z"
    line = written(style, model=nasty, status=200)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", line)
    assert line.count("\n") == 1
    if style == "json":
        assert json.loads(line)["model"] == nasty


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_keys_are_masked_everywhere(style: Any) -> None:
    """Invariant 5: keys are in no log at any level."""
    stream = io.StringIO()
    logger = Logger(stream, style)
    logger.request(a_line(model=KEY, path=f"/v1/{KEY}", owner=f"Bearer {KEY}", status=404))
    logger.event(f"started with {KEY}", upstreams=[f"lab {KEY}"], header=f"authorization: {KEY}")
    try:
        raise ValueError(f"the key {KEY} is wrong")
    except ValueError as error:
        logger.fault(f"failed: {KEY}", error, request_id="req_1")
        record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 1, "told %s", (KEY,), (ValueError, error, None))
        logger.record(record)
    assert KEY not in stream.getvalue()
    assert stream.getvalue().count("[key]") >= 9


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_long_values_are_truncated(style: Any) -> None:
    assert 512 < len(written(style, model="m m " * 25_000)) < 1_000
    stream = io.StringIO()
    Logger(stream, style).event("refused", why="w w " * 25_000)
    assert 4_000 < len(stream.getvalue()) < 4_500


@pytest.mark.parametrize("style", ["json", "pretty"])
@pytest.mark.parametrize("offset", range(len(KEY) + 1))
def test_key_split_by_truncation_is_masked_at_every_offset(style: Any, offset: int) -> None:
    shown = written(style, path="/v1/" + "x/" * 300, model=("m " * 512)[: 512 - offset] + KEY + " m" * 512)
    stream = io.StringIO()
    Logger(stream, style).event("refused", why=("w " * 4_000)[: 4_000 - offset] + KEY + " w" * 100)
    shown += stream.getvalue()
    assert shown.count("[key]") == 3
    assert not any(KEY[:size] in shown for size in range(2, len(KEY) + 1))


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_lone_surrogate_is_logged_as_an_escape(style: Any) -> None:
    assert "udc80" in written(style, model="m\udc80")


def test_json_event_has_a_name_and_fields_of_any_type() -> None:
    stream = io.StringIO()
    Logger(stream, "json", now=lambda: NOON).event(
        "started",
        level="warning",
        url="http://127.0.0.1:1",
        workers=1,
        ready=True,
        wait=0.12345,
        models=["a", ("b",)],
        none=None,
        time=3,
    )
    assert parsed(stream) == [
        {
            "time": "2023-11-14T22:13:20.250Z",
            "level": "warning",
            "event": "started",
            "url": "http://127.0.0.1:1",
            "workers": 1,
            "ready": True,
            "wait": 0.123,
            "models": ["a", ["b"]],
        }
    ]


def test_pretty_event_has_a_name_and_fields() -> None:
    stream = io.StringIO()
    Logger(stream, "pretty").event("started", models=["a", "b"], port=8080, none=None)
    assert stream.getvalue()[9:] == "started  models=a, b  port=8080\n"


def test_exception_is_logged_as_one_json_line_with_traceback() -> None:
    stream = io.StringIO()
    try:
        raise ZeroDivisionError("no")
    except ZeroDivisionError as error:
        Logger(stream, "json").fault("a request failed", error, request_id="req_7")
    [line] = parsed(stream)
    assert line["level"] == "error"
    assert line["event"] == "a request failed"
    assert line["request_id"] == "req_7"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].rstrip().endswith("ZeroDivisionError: no")


def test_long_traceback_is_cut_at_the_start() -> None:
    stream = io.StringIO()
    Logger(stream, "json").fault("failed", ValueError("one line\n" * 2_000 + "the end"))
    [line] = parsed(stream)
    assert line["exception"].startswith("…\none line\n")
    assert line["exception"].rstrip().endswith("the end")
    assert 7_900 < len(line["exception"]) <= 8_002


def test_long_message_in_a_traceback_is_cut_at_the_end() -> None:
    stream = io.StringIO()
    Logger(stream, "json").fault("failed", ValueError("y y " * 20_000))
    [line] = parsed(stream)
    assert line["exception"].startswith("…\nValueError: y y ")
    assert 3_900 < len(line["exception"]) < 4_100


def test_pretty_exception_has_indented_lines() -> None:
    stream = io.StringIO()
    Logger(stream, "pretty").fault("failed", ValueError("no\x1b[2J"))
    assert stream.getvalue()[9:] == "error: failed\n    ValueError: no\\u001b[2J\n"


def test_auto_style_is_pretty_on_a_terminal_and_json_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        logger = Logger(stream)
        logger.request(a_line(status=500))
        logger.event("quiet")
    assert terminal.getvalue().count("\x1b[31m") == 1
    assert "\x1b[0m quiet\n" in terminal.getvalue()
    assert [line["event"] for line in parsed(file)] == ["request", "quiet"]


def test_no_color_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    Logger(terminal).request(a_line(status=500))
    assert "\x1b" not in terminal.getvalue()


def test_logging_to_a_broken_stream_does_not_raise() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (BrokenPipe(), closed):
        Logger(stream).request(a_line())
        Logger(stream, "pretty").event("x")


def test_stream_with_ascii_encoding_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Logger(stream, "json").request(a_line(model="modèle 🜂"))
    assert json.loads(raw.getvalue())["model"] == "modèle 🜂"


def test_library_log_records_are_captured() -> None:
    stream = io.StringIO()
    Logger(io.StringIO(), "json").capture_logging()
    Logger(stream, "json").capture_logging()  # the last one counts, and no line is written twice
    logging.getLogger("uvicorn.error").warning("slow %s", "client")
    logging.getLogger("uvicorn.error").info("not worth a line")
    logging.getLogger("antiphon.api").info("refused", extra={"fields": {"request_id": "req_3"}})
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    lines = parsed(stream)
    assert [(line["level"], line["logger"], line["event"]) for line in lines] == [
        ("warning", "uvicorn.error", "slow client"),
        ("info", "antiphon.api", "refused"),
        ("error", "asyncio", "task failed"),
    ]
    assert lines[1]["request_id"] == "req_3"
    assert lines[2]["exception"].rstrip().endswith("ValueError: inside")


class Unprintable:
    """Cannot be converted to text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("%d of them", ("three",)),
        ("%s and %s", ("one",)),
        ("%y", (1,)),
        ("%(name)s", ({"other": 1},)),
        ("%c", (2**40,)),
        ("100 %", ("x",)),
        ("the argument: %s", (Unprintable(),)),
    ],
)
def test_log_record_with_wrong_arguments_is_written_unformatted(message: str, arguments: tuple[Any, ...]) -> None:
    stream = io.StringIO()
    Logger(stream, "json").record(logging.LogRecord("lib", logging.DEBUG, "x.py", 1, message, arguments, None))
    [line] = parsed(stream)
    assert (line["level"], line["event"]) == ("debug", message)


class Counting(io.StringIO):
    """Counts how often it is written to."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_request_lines_are_batched_in_an_event_loop() -> None:
    async def serve() -> None:
        for number in range(3):
            logger.request(a_line(request_id=f"req_{number}"))
        assert stream.getvalue() == ""
        while not stream.getvalue():
            await asyncio.sleep(0.001)
        logger.request(a_line(request_id="req_3"))
        logger.event("stopping")  # a line that is no request is written at once, after those that wait

    stream = Counting()
    logger = Logger(stream, "json")
    asyncio.run(serve())
    assert [line.get("request_id", line["event"]) for line in parsed(stream)] == [
        "req_0",
        "req_1",
        "req_2",
        "req_3",
        "stopping",
    ]
    assert stream.writes == 3
    logger.flush()  # no line waits any more
    assert stream.writes == 3


def test_many_request_lines_are_written_in_several_steps_of_the_event_loop() -> None:
    """A request that arrives meanwhile does not wait until all are formatted."""
    count = 2 * MAX_ENTRIES_PER_STEP + 1

    async def serve() -> None:
        for number in range(count):
            logger.request(a_line(request_id=f"req_{number}"))
        while not stream.getvalue():
            await asyncio.sleep(0.001)
        logger.request(a_line(request_id="req_late"))
        while stream.writes < 3:
            await asyncio.sleep(0)

    stream = Counting()
    logger = Logger(stream, "json")
    heard: list[str] = []
    logger.add_listener(lambda log_entry: heard.append(log_entry.request_id))
    asyncio.run(serve())
    names = [*(f"req_{number}" for number in range(count)), "req_late"]
    assert heard == [line["request_id"] for line in parsed(stream)] == names
    logger.flush()
    assert stream.writes == 3


def test_error_of_a_listener_does_not_stop_the_log() -> None:
    count = 2 * MAX_ENTRIES_PER_STEP

    def fail_once(log_entry: RequestLog) -> None:
        if log_entry.request_id == "req_0":
            raise ZeroDivisionError

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        for number in range(count):
            logger.request(a_line(request_id=f"req_{number}"))
        while not stream.getvalue():
            await asyncio.sleep(0.001)

    stream, errors = io.StringIO(), list[Exception]()
    logger = Logger(stream, "json")
    logger.add_listener(fail_once)
    asyncio.run(serve())
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert parsed(stream)[0]["request_id"] == f"req_{MAX_ENTRIES_PER_STEP}"


def test_response_id_is_escaped_in_json() -> None:
    line = json.loads(written(response_id='resp"\n{'))
    assert line["response_id"] == 'resp"\n{'


def test_error_that_ends_a_thread_is_logged_without_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """ERR-5."""
    stream = io.StringIO()
    Logger(stream, "json").capture_logging()

    def fail() -> None:
        raise ValueError("the key sk-proj-0123456789abcdefghijklmnop is wrong")

    thread = threading.Thread(target=fail, name="antiphon-trace")
    thread.start()
    thread.join()
    [line] = parsed(stream)
    assert (line["level"], line["event"], line["thread"]) == (
        "error",
        "a thread failed inside the gateway",
        "antiphon-trace",
    )
    assert "ValueError" in stream.getvalue()
    assert "0123456789abcdefghijklmnop" not in stream.getvalue()
    assert capsys.readouterr().err == ""
