"""Every block of the README is run: most of them against `antiphon serve` as a new user starts it, without keys and
with the real model.

Only the address is changed, since port 8080 may be in use. The Codex block is the one that `make test-clients` runs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest
from msgspec.structs import replace
from tests.running import BOUND, running, until

from antiphon import sse
from antiphon.config import parse_config
from antiphon.errors import ConfigError
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Message
from antiphon.testing import ChatServer, ResponsesServer

pytestmark = pytest.mark.io
REPO = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
ADDRESS = "127.0.0.1:8080"
PATIENCE = 120.0  # seconds for a block; the model is small, and the machine may be busy


class Block(NamedTuple):
    section: str
    language: str
    text: str


def _blocks(page: Path) -> list[Block]:
    """Every fenced block, with its section."""
    blocks: list[Block] = []
    section = ""
    for heading, language, text in re.findall(
        r"^## ([^\n]+)$|^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        if not heading:
            blocks.append(Block(section, language, text))
    return blocks


BLOCKS = _blocks(REPO / "README.md")
RUN: set[Block] = set()


def _block(section: str, language: str, at: int = 0) -> str:
    """A block that one of the tests below runs."""
    block = [each for each in BLOCKS if each.section == section and each.language == language][at]
    RUN.add(block)
    return block.text


START = _block("Start", "sh")
ASK, CURL_WHOLE, CURL_STREAM = (_block("Send a request", "sh", at) for at in range(3))
SDK = _block("Send a request", "python")
GO_ON = _block("Continue a response", "python")
OTHER_SDKS = _block("Use another API", "python")
OTHER_PROGRAMS = _block("Use another API", "sh")
OLLAMA, OPENAI, CHAT = (_block("Add a server", "toml", at) for at in range(3))
CODEX = _block("Use Codex CLI", "toml")
LOSSES, SERVE, TRACE = (_block("Debug a request", "sh", at) for at in range(3))
LOSSES_SHOWN = _block("Debug a request", "text")
MAKE_KEY = _block("Give others access", "sh")
KEYS = _block("Give others access", "toml")


def test_every_readme_block_is_run() -> None:
    picture = [block for block in BLOCKS if not block.section]
    assert len(picture) == 1
    assert set(BLOCKS) - RUN == set(picture)


# A gateway as a new user starts it


class Gateway:
    """`antiphon serve` as a process, in an empty folder."""

    def __init__(self, process: subprocess.Popen[str], greeting: str, folder: Path) -> None:
        self.process = process
        self.greeting = greeting
        self.folder = folder

    @property
    def url(self) -> str:
        return "http://" + self.address

    @property
    def address(self) -> str:
        return self.greeting.partition("listens on http://")[2].partition("/v1")[0]

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text(encoding="utf-8").splitlines(keepends=True)
        return [msgspec.json.decode(line) for line in lines if line.endswith("\n")]

    def line_of(self, request_id: str) -> dict[str, Any]:
        """The log line of a request, once it is written."""
        until(lambda: any(line.get("request_id") == request_id for line in self.log))
        return next(line for line in self.log if line.get("request_id") == request_id)

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BOUND)


@contextmanager
def _served(command: Sequence[str], folder: Path) -> Iterator[Gateway]:
    """The gateway that a command starts, once it has printed its address."""
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [BIN / command[0], *command[1:], "--port", "0"],
            env=_bare(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield Gateway(process, _greeting(process, folder / "log"), folder)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(BOUND)
                except subprocess.TimeoutExpired:
                    process.kill()


def _greeting(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line)
        if line.startswith("Press Ctrl-C"):
            return "".join(printed)
    raise AssertionError(f"antiphon serve ended with {process.wait(BOUND)}: {log.read_text(encoding='utf-8')}")


def _bare(folder: Path) -> dict[str, str]:
    """The environment of a fresh machine: no keys and no settings of ours."""
    return {
        "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath), str(folder / "stand-ins")]),
        "HOME": str(folder),
    }


CURL = """
import http.client, sys, urllib.parse
words, headers, data, shows_head, url = sys.argv[1:], {}, b"", False, ""
while words:
    word = words.pop(0)
    if word == "-H":
        name, _, value = words.pop(0).partition(":")
        headers[name] = value.strip()
    elif word == "-d":
        data = words.pop(0).encode()
    elif word.startswith("-"):
        shows_head = shows_head or "i" in word
    else:
        url = word
parts = urllib.parse.urlsplit(url)
connection = http.client.HTTPConnection(parts.netloc, timeout=120)
connection.request("POST", parts.path, data, headers)
answer = connection.getresponse()
if shows_head:
    head = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{name}: {value}" for name, value in answer.getheaders())]
    print(*head, "", sep="\\r\\n")
sys.stdout.write(answer.read().decode())
"""
SHA256SUM = """
import hashlib, sys
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), " -")
"""


def _stand_in_for_missing_programs(folder: Path) -> None:
    """A machine with only Python and make runs the blocks too. These programs come last in its `PATH`, after any real
    ones."""
    (folder / "stand-ins").mkdir(exist_ok=True)
    for name, text in (("curl", CURL), ("sha256sum", SHA256SUM)):
        program = folder / "stand-ins" / name
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)


@pytest.mark.parametrize("flags", [["-si"], ["-N"]])
def test_curl_stand_in_sends_the_request_of_curl(flags: list[str], gateway: Gateway) -> None:
    """Otherwise a machine without curl would run other blocks than the README has."""
    _stand_in_for_missing_programs(gateway.folder)
    body = '{"model":"local","input":"Say hello.","stream":true,"max_output_tokens":16}'
    command = [str(gateway.folder / "stand-ins" / "curl"), *flags, f"{gateway.url}/v1/responses"]
    command += ["-H", "Content-Type: application/json", "-d", body]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert output.rstrip().endswith("data: [DONE]")
    assert ("x-request-id: req_" in output) == (flags == ["-si"])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Started as the README says under "Debug a request"; in the end it has checked its own output."""
    with _served(shlex.split(SERVE), tmp_path_factory.mktemp("newcomer")) as gateway:
        yield gateway
        assert gateway.stop() == 0
        assert [line for line in gateway.log if line["event"] != "request"] == []


def _sh(block: str, gateway: Gateway) -> str:
    """The output of a block. `antiphon ask` gets the address by its variable, all others by replacement."""
    return _run(["sh", "-e"], block.replace(ADDRESS, gateway.address), gateway.folder, ANTIPHON_URL=gateway.url)


def _run(command: Sequence[str], text: str, folder: Path, **environ: str) -> str:
    _stand_in_for_missing_programs(folder)
    done = subprocess.run(
        command,
        input=text,
        env={**_bare(folder), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Start


def test_make_run_starts_antiphon_serve() -> None:
    steps = subprocess.run(
        ["make", "-n", *shlex.split(START)[1:]], cwd=REPO, env=_bare(REPO), capture_output=True, text=True, check=True
    ).stdout
    assert shlex.split(START)[0] == "make"
    assert steps.splitlines()[-1].endswith("/antiphon serve")


def test_make_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    commands = set(
        re.findall(
            r"\bmake ([a-z-]+)`|^make ([a-z-]+)$", (REPO / "README.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert {"run", "test"} <= {target or alone for target, alone in commands} <= targets


def test_serve_without_any_settings_answers_and_stops(tmp_path: Path) -> None:
    """F-3: no configuration, no key, an empty environment: its output is correct, and no process is left at the end."""
    with _served(["antiphon", "serve"], tmp_path) as gateway:
        curl, ask = re.findall(r"^  (curl .+)\n  (\S*antiphon ask .+)$", gateway.greeting, flags=re.MULTILINE)[0]
        assert "local  chat  embedded  local" in gateway.greeting
        assert gateway.url in curl
        models = httpx2.get(f"{gateway.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["local"]
        assert _sh(ask, gateway).strip()
        children = _children(gateway.process.pid)
        assert children or not Path("/proc/self/task").is_dir()
        assert gateway.stop() == 0
        assert not [pid for pid in children if _is_there(pid)]
        assert gateway.process.stdout is not None
        assert gateway.process.stdout.read() == ""


def _children(pid: int) -> list[int]:
    """The child processes of a process; none where there is no /proc."""
    return [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Requests


def test_antiphon_ask_block_prints_an_answer(gateway: Gateway) -> None:
    """F-3: the real model, from the command line."""
    assert _sh(ASK, gateway).strip()


def test_curl_block_gets_a_plain_answer(gateway: Gateway) -> None:
    """F-3."""
    response = decode_response(_sh(CURL_WHOLE, gateway).encode())
    message = response.output[0]
    assert isinstance(message, Message)
    assert response.model == "local"
    assert response.usage is not None
    assert response.usage.output_tokens > 0


def test_curl_block_gets_a_stream(gateway: Gateway) -> None:
    """F-3: a conformant stream of several pieces."""
    frames = sse.Decoder().feed(_sh(CURL_STREAM, gateway).encode())
    events = [decode_event(frame.data) for frame in frames[:-1]]
    assert frames[-1].data == sse.DONE
    assert find_violations(events) == []
    assert len([event for event in events if isinstance(event, OutputTextDelta)]) > 1


def test_text_arrives_while_the_answer_is_generated(gateway: Gateway) -> None:
    """F-3: a client that disconnects at the first piece disconnects during the answer."""
    asked = {"model": "local", "input": "Tell a long story about the sea, in many chapters.", "stream": True}
    with httpx2.stream("POST", f"{gateway.url}/v1/responses", json=asked, timeout=PATIENCE) as answer:
        assert any("response.output_text.delta" in line for line in answer.iter_lines())
    assert gateway.line_of(answer.headers["x-request-id"])["client_left"]


def test_openai_sdk_block_creates_streams_and_parses(gateway: Gateway) -> None:
    """F-3: the block as a separate program."""
    created, *streamed, parsed = _run(
        [sys.executable, "-W", "error"], SDK.replace(ADDRESS, gateway.address), gateway.folder
    ).splitlines()
    assert created.strip()
    assert "".join(streamed).strip()
    assert re.fullmatch(r"name='.+' age=-?\d+", parsed)


def test_openai_sdk_block_continues_a_response(gateway: Gateway) -> None:
    """PREV-1: the second answer had the whole earlier conversation as input."""
    before = len(gateway.log)
    assert _run([sys.executable, "-W", "error"], GO_ON.replace(ADDRESS, gateway.address), gateway.folder).strip()
    until(lambda: len(gateway.log) >= before + 4)
    first, second, *deleted = gateway.log[before:]
    assert second["input_tokens"] > first["input_tokens"] + first["output_tokens"]
    assert [(line["method"], line["status"]) for line in deleted] == [("DELETE", 200)] * 2


def test_other_sdk_block_calls_the_same_model(gateway: Gateway) -> None:
    """API-6: each in its own form."""
    before = len(gateway.log)
    assert _run([sys.executable, "-W", "error"], OTHER_SDKS.replace(ADDRESS, gateway.address), gateway.folder).strip()
    until(lambda: len(gateway.log) >= before + 3)
    asked = [(line["path"].rpartition("/")[2], line["status"]) for line in gateway.log[before:]]
    assert asked == [("completions", 200), ("messages", 200), ("local:generateContent", 200)]


LISTING = """
python - <<END
from anthropic import Anthropic
from google import genai
print(*(model.id for model in Anthropic().models.list()))
with genai.Client() as client:
    print(*(model.name for model in client.models.list()))
END
"""


def test_environment_variables_block_points_sdks_to_the_gateway(gateway: Gateway) -> None:
    """Both SDKs read them, without an argument."""
    assert _sh(OTHER_PROGRAMS + LISTING, gateway).split() == ["local", "models/local"]


# Upstream servers

ENVIRON = {"OPENAI_API_KEY": "key-of-openai", "LAB_KEY": "key-of-lab"}


@pytest.mark.parametrize(
    ("block", "server", "asked", "reached", "key"),
    [
        (OLLAMA, ChatServer, "llama3.2", "llama3.2", None),
        (OPENAI, ResponsesServer, "gpt-5", "gpt-5", "key-of-openai"),
        (CHAT, ChatServer, "qwen3-4b", "qwen3-4b", "key-of-lab"),
        (CHAT, ChatServer, "gpt-5.5", "qwen3-coder", "key-of-lab"),
    ],
    ids=["Ollama", "OpenAI", "chat", "chat, renamed"],
)
def test_configuration_block_serves_its_upstream(
    block: str, server: type[ChatServer] | type[ResponsesServer], asked: str, reached: str, key: str | None
) -> None:
    [written] = parse_config(block, "antiphon.toml", ENVIRON).upstreams
    with server() as upstream:
        here = block.replace(written.base_url, upstream.base_url)
        with running(parse_config(here, "antiphon.toml", ENVIRON), environ=ENVIRON) as gateway:
            whole = gateway.post({"model": asked, "input": "Say hello."})
            streamed = gateway.post({"model": asked, "input": "Say hello.", "stream": True})
        assert not upstream.refusals
        assert [received.json["model"] for received in upstream.received] == [reached] * 2
        assert {received.headers.get("authorization") for received in upstream.received} == {
            f"Bearer {key}" if key else None
        }
    assert whole.json()["status"] == "completed"
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_configuration_blocks_can_be_combined() -> None:
    config = parse_config(OPENAI + CHAT + OLLAMA, "antiphon.toml", ENVIRON)
    assert [upstream.name for upstream in config.upstreams] == ["openai", "lab", "ollama"]


def test_codex_block_is_the_tested_one() -> None:
    codex = tomllib.loads(CODEX)
    assert CODEX in [block.text for block in _blocks(REPO / "docs" / "clients.md")]
    assert codex["model_providers"][codex["model_provider"]]["base_url"] == f"http://{ADDRESS}/v1"
    [chat] = parse_config(CHAT, "antiphon.toml", ENVIRON).upstreams
    assert chat.upstream_model(codex["model"]) is not None


# Losses and traces


def test_losses_block_prints_the_documented_header(gateway: Gateway) -> None:
    assert _sh(LOSSES, gateway).strip().lower() == LOSSES_SHOWN.strip()


def test_trace_blocks_list_show_and_replay(gateway: Gateway) -> None:
    asked = {"model": "local", "input": "Say hello.", "max_output_tokens": 16, "stream": True}
    answer = httpx2.post(f"{gateway.url}/v1/responses", json=asked, timeout=PATIENCE)
    id = answer.headers["x-request-id"]
    until(lambda: any(id in file.name for file in (gateway.folder / "traces").glob("*.jsonl")))
    printed = _sh(TRACE, gateway)
    assert printed.count(id) >= 2
    assert '"input": "Say hello."' in printed
    assert printed.rstrip().endswith("data: [DONE]")


# Keys


def test_key_block_creates_a_working_key(tmp_path: Path) -> None:
    key, digest = _run(["sh", "-e"], MAKE_KEY, tmp_path).split()[:2]
    assert digest == sha256(key.encode()).hexdigest()
    config = parse_config(re.sub(r"[0-9a-f]{64}", digest, KEYS), "antiphon.toml", {})
    assert (config.server.host, [each.name for each in config.keys]) == ("0.0.0.0", ["alice"])
    here = replace(config, server=replace(config.server, host="127.0.0.1"))
    with running(here) as gateway:
        assert gateway.get("/v1/models").status_code == 401
        assert gateway.get("/v1/models", authorization=f"Bearer {key}").status_code == 200
        assert gateway.get("/v1/models", x_api_key=key).status_code == 200


def test_public_host_without_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="no keys"):
        parse_config(KEYS.partition("[[keys]]")[0], "antiphon.toml", {})
