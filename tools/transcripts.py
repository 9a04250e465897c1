"""Records sessions in a terminal with the real program, and writes them into the documentation.

    python tools/transcripts.py [SCENE ...]

Builds the wheels, installs them with uv into a clean home, and types the commands of each scene in tmux. The screen is
written between the marks of the scene in its page. Needs tmux, the ports 8080 and 11434, and a few minutes.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tools.clean_install import Environment, Tools, clean_environment, make_tools

ROOT: Final = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 100, 50  # of the terminal
LIMIT: Final = 600.0  # seconds for one command; an installation downloads the model
POLL_INTERVAL: Final = 0.1  # seconds
PROMPT: Final = "$ "
HOME: Final = "/home/you"
FENCE: Final = "~~~"
END_MARK: Final = "<!-- end of transcript -->"
PACKAGE: Final = " + "  # the start of the line of an installed package
STARTED: Final = "Press Ctrl-C to stop."


class Scene(NamedTuple):
    """A session: the page that shows it, and the function that plays it."""

    page: str
    play: Callable[[Environment], list[str]]


class Screen:
    """A shell in tmux. Keys are typed, and the screen is read as a person sees it."""

    def __init__(self, environment: Environment, name: str) -> None:
        self._session = f"antiphon-transcript-{name}"
        self._folder = environment.folder
        variables = {**environment.variables, "PS1": PROMPT, "PROMPT_COMMAND": "", "HISTFILE": "/dev/null"}
        settings = [f"{key}={value}" for key, value in variables.items()]
        shell = shlex.join(["env", "-i", *settings, "bash", "--norc", "--noprofile"])
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        self._tmux("new-session", "-d", "-s", self._session, *size, "-c", str(environment.folder), shell)
        self.wait_for_prompt()

    def run(self, command: str) -> None:
        """Types a command, and waits until the next prompt of the shell."""
        self.type(command)
        time.sleep(1)  # until the shell has taken the line
        self.wait_for_prompt()

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", self._session, "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", "-t", self._session, key)

    def wait_for_prompt(self) -> None:
        self.wait_until(lambda text: _last_line(text) == PROMPT.strip())

    def stop(self) -> None:
        """Ends the command with Ctrl-C: the gateway would go on after the hangup of its terminal."""
        self.press("C-c")
        self.wait_until(lambda text: _last_line(text).endswith(PROMPT.strip()))

    def wait_for(self, text: str) -> None:
        self.wait_until(lambda screen: text in screen)

    def wait_until(self, is_ready: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not is_ready(self.text()):
            if time.monotonic() > deadline:
                raise SystemExit(f"the screen did not change as expected:\n{self.text()}")
            time.sleep(POLL_INTERVAL)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p", "-J", "-S", "-", "-t", self._session)

    def transcript(self) -> str:
        """Returns the screen without what belongs to this machine."""
        return clean_screen(self.text(), str(self._folder))

    def close(self) -> None:
        self._tmux("kill-session", "-t", self._session)

    def _tmux(self, *words: str) -> str:
        return subprocess.run(["tmux", *words], capture_output=True, text=True, check=True).stdout


def _last_line(screen: str) -> str:
    return screen.rstrip().rpartition("\n")[2]


def clean_screen(text: str, folder: str) -> str:
    """Returns the text of a screen: without the last prompt and the end of lines, with a short list of packages, and
    with the name of a usual home folder."""
    lines = [line.rstrip() for line in text.replace(folder, HOME).split("\n")]
    while lines and lines[-1] in ("", PROMPT.strip()):
        lines.pop()
    packages = [line for line in lines if line.startswith(PACKAGE)]
    if packages:
        first = lines.index(packages[0])
        lines = [line for line in lines if line not in packages]
        lines.insert(first, f"{PACKAGE}… {len(packages)} packages")
    return "\n".join(lines) + "\n"


def write_transcript(page: str, scene: str, blocks: list[str]) -> str:
    """Returns the page with the blocks of a scene between its marks. Between two blocks is a line about the second
    terminal."""
    mark = begin_mark(scene)
    if page.count(mark) != 1 or END_MARK not in page.partition(mark)[2]:
        raise ValueError(f"expected {mark} once, with {END_MARK} after it")
    before, _, rest = page.partition(mark)
    after = rest.partition(END_MARK)[2]
    fenced = [f"{FENCE}text\n{block}{FENCE}\n" for block in blocks]
    return f"{before}{mark}\n" + "\nIn a second terminal:\n\n".join(fenced) + f"{END_MARK}{after}"


def begin_mark(scene: str) -> str:
    return f"<!-- transcript: {scene} -->"


def transcript_of(page: str, scene: str) -> str:
    """Returns what stands between the marks of a scene."""
    return page.partition(begin_mark(scene))[2].partition(END_MARK)[0]


# Scenes


@contextmanager
def _screen(environment: Environment, name: str) -> Iterator[Screen]:
    screen = Screen(environment, name)
    try:
        yield screen
    finally:
        screen.close()


@contextmanager
def _serving(environment: Environment) -> Iterator[Screen]:
    """Runs the gateway in a terminal of its own."""
    with _screen(environment, "serve") as screen:
        screen.type("antiphon serve")
        screen.wait_for(STARTED)
        yield screen
        screen.stop()


def play_install(environment: Environment) -> list[str]:
    with _screen(environment, "install") as first, _screen(environment, "ask") as second:
        first.run('uv tool install "antiphon[local]"')
        first.type("antiphon serve")
        first.wait_for(STARTED)
        second.run('antiphon ask "What is the capital of Peru?"')
        second.run('antiphon ask -m lokal "Say hello."')
        blocks = [first.transcript(), second.transcript()]
        first.stop()
        return blocks


def play_init(environment: Environment) -> list[str]:
    server = [sys.executable, "-m", "antiphon.testing", "chat", "--port", "11434", "--model", "qwen3-coder"]
    process = subprocess.Popen(server, stdout=subprocess.DEVNULL)
    try:
        with _screen(environment, "init") as screen:
            screen.type("antiphon init")
            for name in ("Ollama", "embedded"):
                screen.wait_until(lambda text, name=name: _asks(text, name))  # type: ignore[misc]
                screen.press("Enter")
            screen.wait_for_prompt()
            screen.run("cat antiphon.toml")
            return [screen.transcript()]
    finally:
        process.terminate()
        process.wait()
        for name in ("antiphon.toml", "antiphon.schema.json"):
            (environment.folder / name).unlink(missing_ok=True)


def _asks(screen: str, name: str) -> bool:
    last = _last_line(screen)
    return name in last and last.endswith("[Y/n]")


def play_run(environment: Environment) -> list[str]:
    environment.require("uv", "tool", "install", "-q", "llm")
    with _screen(environment, "run") as screen:
        screen.run('antiphon run llm -- "What is the capital of Peru?"')
        return [screen.transcript()]


def play_chat(environment: Environment) -> list[str]:
    with _serving(environment), _screen(environment, "chat") as screen:
        screen.type("antiphon chat")
        for number, line in enumerate(CHAT_LINES, 1):
            # A prompt after each answer: the first is there before a line is typed.
            screen.wait_until(lambda text, number=number: _chat_prompts(text) == number)  # type: ignore[misc]
            screen.type(line)
        screen.wait_until(lambda text: _chat_prompts(text) == len(CHAT_LINES) + 1)
        screen.run("/quit")
        return [screen.transcript()]


def _chat_prompts(screen: str) -> int:
    """Returns the number of prompts, if the last line is an empty one; else 0."""
    is_waiting = _last_line(screen) == ">"
    return sum(line.startswith(">") for line in screen.split("\n")) if is_waiting else 0


CHAT_LINES: Final = (
    "The code word is walnut.",
    "What is the code word?",
    "/modle",
    "/model",
    "/new",
    "What is the capital of Peru?",
    "/save talk.txt",
)
SCENES: Final = {
    "install": Scene("docs/install.md", play_install),
    "init": Scene("docs/servers.md", play_init),
    "run": Scene("docs/clients.md", play_run),
    "chat": Scene("docs/tutorials/first-answer.md", play_chat),
}


def home_environment(tools: Tools, environment: Environment) -> Environment:
    """The environment with a home of its own in place of folders of this machine."""
    dropped = ("XDG_", "ANTIPHON_", "TMUX", "NO_COLOR")
    kept = {key: value for key, value in environment.variables.items() if not key.startswith(dropped)}
    folder = str(environment.folder)
    path = f"{folder}/bin:{tools.bin}:{kept['PATH']}"
    return Environment(environment.folder, {**kept, "HOME": folder, "PATH": path, "TERM": "tmux-256color"})


def main() -> None:
    parser = argparse.ArgumentParser(description="Records the transcripts of the documentation.")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)} (default: all)")
    names = parser.parse_args().scenes or list(SCENES)
    with tempfile.TemporaryDirectory() as work:
        tools = make_tools(Path(work))
        with clean_environment(tools, Path(work)) as clean:
            environment = home_environment(tools, clean)
            if "install" not in names:
                environment.require("uv", "tool", "install", "-q", "antiphon[local]")
            for name in names:
                record(name, environment)


def record(name: str, environment: Environment) -> None:
    """Plays a scene, and writes it into its page."""
    page = ROOT / SCENES[name].page
    blocks = SCENES[name].play(environment)
    page.write_text(write_transcript(page.read_text(encoding="utf-8"), name, blocks), encoding="utf-8")
    print(f"{name}: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
