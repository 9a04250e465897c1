"""`trace/writer`: what is recorded, what is omitted, and that tracing cannot affect a request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.config import TraceConfig
from antiphon.errors import ConfigError
from antiphon.protocol.losses import Losses
from antiphon.trace.folder import trace_file_name, trace_files, write_file
from antiphon.trace.reader import RecordedTrace, list_traces, read_trace
from antiphon.trace.writer import MAX_QUEUED_BYTES, MAX_TRACE_BYTES, Trace, TraceWriter

SECRET = "upstream-key-1"
JSON = [(b"content-type", b"application/json")]


class Clock:
    """Each call takes a tenth of a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 0.1
        return self.time


def traced(folder: Path, tell: Callable[[Trace], None]) -> RecordedTrace:
    traces = TraceWriter(TraceConfig(dir=str(folder)), [SECRET], now=lambda: 1_760_000_000.0, clock=Clock())
    trace = traces.start_trace("req_1")
    tell(trace)
    trace.finish()
    traces.close()
    assert traces.dropped_traces == 0
    return read_trace(folder, "req_1")


def ask(trace: Trace, body: bytes = b"{}") -> None:
    trace.record_client_request("POST", "/v1/responses", JSON, body)


def whole_turn(trace: Trace) -> None:
    headers = [(b"Authorization", b"Bearer client-key-1"), (b"Accept", b"a"), (b"accept", b"b"), (b"x-other", b"1")]
    trace.record_client_request("POST", "/v1/responses?key=k", headers, b'{"input":"client-key-1 upstream-key-1"}')
    trace.record_hub_request(b'{"input":"upstream-key-1"}')
    trace.record_route("lab", "chat", "mock-1", "chat", True)
    trace.record_upstream_request(
        "POST", "http://lab/v1", {"authorization": "Bearer carried-key-1"}, b"carried-key-1 \xff"
    )
    trace.record_upstream_head(200, {"content-type": "text/event-stream", "set-cookie": "c"})
    trace.record_upstream_piece(b"upstream-")
    trace.record_upstream_piece(b"key-1 \xc3")
    trace.record_client_head(200, [(b"x-request-id", b"req_1")])
    trace.record_client_piece(b"client-ke")
    trace.record_client_piece(b"y-1.")
    losses = Losses()
    losses.add("store", "upstream-key-1 is not stored", "upstream-key-1")
    trace.record_losses(losses)
    trace.record_losses(losses)
    trace.record_note("model", "fast")
    trace.record_note("error", "bad upstream-key-1")
    trace.record_note("tokens", 3)
    trace.record_note("error", None)


def test_secrets_of_a_later_configuration_are_removed_too(tmp_path: Path) -> None:
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)), [SECRET])
    traces.add_secrets(["second-key-2"])
    trace = traces.start_trace("req_1")
    ask(trace, b"upstream-key-1 second-key-2")
    trace.finish()
    traces.close()
    request = read_trace(tmp_path, "req_1").client_request
    assert request is not None
    assert request.body.raw == b"[removed] [removed]"


def test_trace_contains_the_whole_turn(tmp_path: Path) -> None:
    read = traced(tmp_path, whole_turn)
    assert read.client_request is not None
    assert (read.client_request.method, read.client_request.path) == ("POST", "/v1/responses?key=[removed]")
    assert read.client_request.headers == {"authorization": "[removed]", "accept": "a, b"}
    assert read.client_request.body.raw == b'{"input":"[removed] [removed]"}'
    assert read.hub_request is not None
    assert read.hub_request.body.raw == b'{"input":"[removed]"}'
    assert read.route is not None
    assert (read.route.upstream, read.route.dialect, read.route.profile, read.route.stream) == (
        "lab",
        "chat",
        "chat",
        True,
    )
    assert read.upstream_request is not None
    assert (read.upstream_request.url, read.upstream_request.body.raw) == ("http://lab/v1", b"[removed] \xff")
    assert read.upstream_head is not None
    assert read.upstream_head.headers == {"content-type": "text/event-stream", "set-cookie": "[removed]"}
    assert [piece.data.raw for piece in read.upstream_pieces] == [b"[removed]", b" \xc3"]
    assert read.client_head is not None
    assert (read.client_head.status, read.client_head.headers) == (200, {"x-request-id": "req_1"})
    assert [piece.data.raw for piece in read.client_pieces] == [b"[removed]", b"."]
    assert [str(loss) for loss in read.losses] == ["store: [removed] is not stored ([removed])"]
    assert read.notes == {"model": "fast", "error": None, "tokens": 3}
    assert read.omitted_bytes == {}


def test_trace_summary_has_the_main_fields(tmp_path: Path) -> None:
    summary = traced(tmp_path, whole_turn).summary
    assert (summary.id, summary.time, summary.model, summary.upstream) == ("req_1", 1_760_000_000.0, "fast", "lab")
    assert (summary.status, summary.losses, summary.error) == (200, 1, "bad [removed]")
    assert list_traces(tmp_path) == [summary]


def test_trace_records_have_their_time_since_the_start(tmp_path: Path) -> None:
    read = traced(tmp_path, whole_turn)
    times = [record.at for record in read.records]
    assert times == sorted(times)
    assert times[0] == 0.1
    assert read.summary.duration > times[-1]


def test_trace_folder_contains_no_keys(tmp_path: Path) -> None:
    """Invariant 5: keys are in no file."""
    traced(tmp_path, whole_turn)
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"key-1" not in written
    assert written.count(b"[removed]") > 10


def test_trace_without_upstream_has_an_empty_summary(tmp_path: Path) -> None:
    summary = traced(tmp_path, ask).summary
    assert (summary.model, summary.upstream, summary.status, summary.losses, summary.error) == (
        None,
        None,
        None,
        0,
        None,
    )


def test_request_without_a_read_body_is_not_traced(tmp_path: Path) -> None:
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)))
    trace = traces.start_trace("req_1")
    trace.record_client_head(401, JSON)
    trace.record_client_piece(b"{}")
    trace.finish()
    traces.close()
    assert list_traces(tmp_path) == []
    assert traces.dropped_traces == 0


def test_calls_after_finish_record_nothing(tmp_path: Path) -> None:
    def tell(trace: Trace) -> None:
        ask(trace)
        trace.finish()
        whole_turn(trace)

    assert len(traced(tmp_path, tell).records) == 1


def test_oversized_body_is_omitted_and_the_rest_is_kept(tmp_path: Path) -> None:
    def tell(trace: Trace) -> None:
        ask(trace, b"x" * (MAX_TRACE_BYTES - 2000))
        trace.record_hub_request(b"y" * 5000)
        trace.record_upstream_piece(b"kept")
        trace.record_upstream_piece(b"z" * 5000)
        trace.record_upstream_piece(b"a hole before it")
        trace.record_client_piece(b"kept too")
        trace.record_client_piece(b"c" * 5000)

    read = traced(tmp_path, tell)
    assert read.omitted_bytes == {"hub_request": 5000, "upstream_piece": 5016, "client_piece": 5000}
    assert read.hub_request is not None
    assert read.hub_request.body.raw == b""
    assert [piece.data.raw for piece in read.upstream_pieces] == [b"kept"]
    assert [piece.data.raw for piece in read.client_pieces] == [b"kept too"]


def test_small_pieces_count_with_their_memory_overhead(tmp_path: Path) -> None:
    def tell(trace: Trace) -> None:
        ask(trace, b"x" * (MAX_TRACE_BYTES - 2000))
        for _ in range(100):
            trace.record_upstream_piece(b"x")

    assert len(traced(tmp_path, tell).upstream_pieces) < 10


class Gate:
    """A clock that blocks the writer until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> float:
        if threading.current_thread().name == "antiphon-trace":
            self.reached.set()
            assert self.open.wait(60)
        return time.time()


def test_traces_over_the_queue_limit_are_dropped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)), now=gate)
    assert gate.reached.wait(60)
    fitting = MAX_QUEUED_BYTES // MAX_TRACE_BYTES
    for number in range(fitting + 2):
        trace = traces.start_trace(f"req_{number}")
        ask(trace, b"x" * (MAX_TRACE_BYTES - 1000))
        trace.finish()
    assert traces.dropped_traces == 2
    assert [record.message.split(" because")[0] for record in caplog.records] == ["a trace was dropped"], "said once"
    gate.open.set()
    traces.close()
    assert len(list_traces(tmp_path)) == fitting


def test_traces_after_close_are_dropped(tmp_path: Path) -> None:
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)))
    trace = traces.start_trace("req_1")
    ask(trace)
    traces.close()
    trace.finish()
    assert traces.dropped_traces == 1
    assert list_traces(tmp_path) == []


def record_one(traces: TraceWriter, id: str) -> None:
    trace = traces.start_trace(id)
    ask(trace)
    trace.finish()


@pytest.fixture
def thread_errors(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """The exceptions that ended threads."""
    errors: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: errors.append(arguments.exc_value))
    return errors


def close_and_join_threads(traces: TraceWriter) -> None:
    traces.close()
    for thread in threading.enumerate():
        if thread.name == "antiphon-trace":
            thread.join(60)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_unwritable_folder_is_logged_once_and_recovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.trace")
    file = tmp_path / "file"
    blocked = file / "traces"
    file.write_bytes(b"")
    traces = TraceWriter(TraceConfig(dir=str(blocked)))
    record_one(traces, "req_1")
    record_one(traces, "req_2")
    until(lambda: traces.dropped_traces == 2)
    file.unlink()
    record_one(traces, "req_3")
    traces.close()
    assert [summary.id for summary in list_traces(blocked)] == ["req_3"]
    failed, healed = [record.getMessage() for record in caplog.records]
    assert failed == f"traces cannot be written to {blocked}: Not a directory; requests are not affected"
    assert healed == f"traces are written to {blocked} again"


def test_internal_error_in_one_trace_is_reported_and_does_not_end_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, thread_errors: list[BaseException | None]
) -> None:
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)))
    record_one(traces, "req_1")
    trace = traces.start_trace("req_2")
    ask(trace)
    trace.record_note("tokens", object())  # type: ignore[arg-type]
    trace.finish()
    record_one(traces, "req_3")
    close_and_join_threads(traces)
    assert {summary.id for summary in list_traces(tmp_path)} == {"req_1", "req_3"}
    assert list(tmp_path.glob(".*")) == []
    assert [type(error) for error in thread_errors] == [AttributeError]
    assert traces.dropped_traces == 1
    assert caplog.records == []


def test_internal_error_in_a_sweep_is_reported_and_does_not_end_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, thread_errors: list[BaseException | None]
) -> None:
    def now() -> float:
        if threading.current_thread().name == "antiphon-trace":
            raise RuntimeError("with a prompt in it")
        return 1_760_000_000.0

    traces = TraceWriter(TraceConfig(dir=str(tmp_path)), now=now)
    record_one(traces, "req_1")
    record_one(traces, "req_2")
    close_and_join_threads(traces)
    assert len(list_traces(tmp_path)) == 2
    assert {str(error) for error in thread_errors} == {"with a prompt in it"}
    assert caplog.records == []
    assert traces.dropped_traces == 0


def test_trace_folder_is_swept_at_the_start_and_while_writing(tmp_path: Path) -> None:
    mib = 1024 * 1024
    write_file(tmp_path, trace_file_name("req_old", 0.0), [b"x"])
    write_file(tmp_path, trace_file_name("req_large", 1_759_999_999.0), [b"x" * (mib - 100)])
    now = [1_760_000_000.0]
    traces = TraceWriter(TraceConfig(dir=str(tmp_path), max_mib=1, max_days=1.0), now=lambda: now[0])
    until(lambda: len(trace_files(tmp_path)) == 1)
    assert [file.id for file in trace_files(tmp_path)] == ["req_large"]
    record_one(traces, "req_1")
    until(lambda: [file.id for file in trace_files(tmp_path)] == ["req_1"])
    now[0] += 2 * 86_400
    record_one(traces, "req_2")
    until(lambda: [file.id for file in trace_files(tmp_path)] == ["req_2"])
    traces.close()


def test_traces_expire_while_idle(tmp_path: Path) -> None:
    write_file(tmp_path, trace_file_name("req_1", 1_760_000_000.0), [b"x"])
    now = [1_760_000_000.0]
    traces = TraceWriter(TraceConfig(dir=str(tmp_path), max_days=1.0), now=lambda: now[0], sweep_interval=0.001)
    assert len(trace_files(tmp_path)) == 1
    now[0] += 2 * 86_400
    until(lambda: not trace_files(tmp_path))
    traces.close()


def test_trace_writer_requires_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"trace\.dir is missing"):
        TraceWriter(TraceConfig())
