"""Runs the blocks of a page of the documentation in their order, as a reader does.

Blocks of `sh` are commands. A command that serves is started in the background, and the next block begins when it
listens. Blocks of `text` after a command are its output, in which `…` stands for any text. A block whose first line is
a comment with a file name is that file. Other blocks of `python` are programs. Ports are replaced by free ones.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.running import BOUND

REPO: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
PATIENCE: Final = 120.0  # seconds for a block; the model is small, and the machine may be busy
PORTS: Final = ("8080", "8081", "9001", "9002")
SERVING: Final = re.compile(r"^(?:antiphon serve|python -m antiphon\.testing)\b")
FILE_NAME: Final = re.compile(r"# ([\w.-]+)\n")


class Block(NamedTuple):
    """A fenced block, with the heading above it."""

    section: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    blocks: list[Block] = []
    section = ""
    for heading, language, text in re.findall(
        r"^##+ ([^\n]+)$|^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        if not heading:
            blocks.append(Block(section, language, text))
    return blocks


class Server:
    """A command that serves, as a process."""

    def __init__(self, command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.log = folder / f"server-{len([*folder.glob('server-*')])}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.greeting = self._read_greeting()

    def _read_greeting(self) -> str:
        """What the command prints until it listens: a gateway several lines, a test server its address."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith(("Press Ctrl-C", "http://")):
                return "".join(lines)
        raise AssertionError(f"the server ended with {self.process.wait(BOUND)}: {self.log.read_text()}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(BOUND)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(BOUND)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Player:
    """A reader's folder, with the servers that were started in it."""

    def __init__(self, folder: Path, replacements: Mapping[str, str]) -> None:
        self.folder = folder
        self.replacements = replacements
        self.servers: list[Server] = []
        self.output = ""
        write_stand_ins(folder / "stand-ins")

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return f"http://127.0.0.1:{self.replacements['8080']}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a fresh machine: no keys and no settings of ours."""
        return {
            "PATH": os.pathsep.join(
                [
                    str(self.folder / "programs"),
                    str(BIN),
                    os.environ.get("PATH", os.defpath),
                    str(self.folder / "stand-ins"),
                ]
            ),
            "HOME": str(self.folder),
            "ANTIPHON_URL": self.url,
        }

    def play(self, block: Block, exit_code: int = 0) -> None:
        """Runs a block, which must end with this code, or compares it with the output of the block before."""
        text = self._with_replacements(block.text)
        file = FILE_NAME.match(text)
        if file:
            (self.folder / file[1]).write_text(text, encoding="utf-8")
        elif block.language == "text":
            self._compare(text)
        elif SERVING.match(text):
            self.serve(text)
        elif block.language == "python":
            self._run([sys.executable, "-W", "error", "-c", text], exit_code)
        else:
            self._run(["sh", "-e", "-c", text], exit_code)

    def _with_replacements(self, text: str) -> str:
        for original, replacement in self.replacements.items():
            text = re.sub(rf"(?<!\w){re.escape(original)}(?!\w)", replacement, text)
        return text

    def serve(self, text: str) -> None:
        """Starts a command that serves."""
        command = text.split()
        if command[0] == "antiphon" and "--port" not in command:
            command += ["--port", self.replacements["8080"]]
        server = Server([str(BIN / command[0]), *command[1:]], self.folder, self.environ)
        self.servers.append(server)
        self.output = server.greeting

    def _run(self, command: list[str], exit_code: int) -> None:
        done = subprocess.run(
            command,
            env=self.environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == exit_code, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        self.output = done.stdout

    def _compare(self, text: str) -> None:
        lines = [_words(line) for line in text.splitlines()]
        pattern = "\n".join(re.escape(line).replace("…", ".*") for line in lines)
        output = "\n".join(_words(line) for line in self.output.splitlines())
        assert re.fullmatch(pattern, output, re.DOTALL | re.IGNORECASE), f"documented:\n{text}\nprinted:\n{self.output}"


def _words(line: str) -> str:
    return " ".join(line.split())


@contextmanager
def reader(folder: Path, **replacements: str) -> Iterator[Player]:
    """A reader in an empty folder."""
    player = Player(folder, {**dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), **replacements})
    try:
        yield player
    finally:
        for server in player.servers:
            server.stop()


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


# Stand-ins for programs that a machine may lack

CURL: Final = """
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
connection.request("POST" if data else "GET", parts.path, data, headers)
answer = connection.getresponse()
if shows_head:
    head = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{name}: {value}" for name, value in answer.getheaders())]
    print(*head, "", sep="\\r\\n")
sys.stdout.write(answer.read().decode())
"""
SHA256SUM: Final = """
import hashlib, sys
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), " -")
"""


def write_stand_ins(folder: Path) -> None:
    """A machine with only Python and make runs the blocks too. These programs come last in its `PATH`, after any real
    ones."""
    folder.mkdir(exist_ok=True)
    for name, text in (("curl", CURL), ("sha256sum", SHA256SUM)):
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
