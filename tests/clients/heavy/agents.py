"""Runs command-line agents for the catalog: one process for each feature, with the set-up of the page and a home of its
own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.clients.blocks import block
from tests.clients.heavy.npm_programs import installed, run
from tests.clients.heavy.programs import PYTHONS, Result
from tests.clients.heavy.setups import DOCUMENTED_MODEL, DOCUMENTED_URL
from tests.clients.heavy.task import CITY, NOTE
from tests.clients.heavy.test_claude_code import run_claude
from tests.clients.heavy.test_codex import IN_THE_SHELL, WEBSOCKET, exec_codex, places
from tests.clients.heavy.test_gemini_cli import OPTIONS as GEMINI_OPTIONS
from tests.clients.heavy.test_opencode import ALONE

PROMPT: Final = "Read the note and answer."
SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
    "required": list(CITY),
    "additionalProperties": False,
}
#: Runs one feature: its name, the URL of the gateway, and a folder of its own.
RunFeature = Callable[[str, str, Path], Result]


def run_agent(agent: str, folder: Path, gateway: str, features: Sequence[str]) -> dict[str, Result]:
    """The results by feature. A process that fails has its output as the error."""
    results: dict[str, Result] = {}
    for feature in features:
        place = folder / feature
        place.mkdir()
        try:
            results[feature] = AGENTS[agent](feature, gateway, place)
        except AssertionError as failure:
            results[feature] = Result(error=str(failure)[-4000:])
    return results


def run_claude_code(feature: str, gateway: str, folder: Path) -> Result:
    options = ["--model", f"lab-{feature}", "--include-partial-messages"]
    if feature == "structured":
        options += ["--json-schema", json.dumps(SCHEMA)]
    events = run_claude(gateway, _workplace(folder), folder, *options)
    deltas = [event["event"].get("delta", {}) for event in events if event["type"] == "stream_event"]
    last = events[-1]
    return Result(
        text=last["result"],
        pieces=[delta["text"] for delta in deltas if delta.get("type") == "text_delta"],
        reasoning="".join(delta["thinking"] for delta in deltas if delta.get("type") == "thinking_delta"),
        parsed=last.get("structured_output"),
    )


def run_codex(feature: str, gateway: str, folder: Path, *settings: str) -> Result:
    home, workplace = places(folder, gateway, *settings)
    _write_note(workplace)
    documented = shlex.split(block("codex exec").splitlines()[-1])[1:]
    command = [*documented, "-c", "show_raw_agent_reasoning=true"]
    if feature == "structured":
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        command += ["--output-schema", str(folder / "schema.json")]
    events = exec_codex(IN_THE_SHELL._replace(model=f"lab-{feature}"), home, workplace, command)
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    text = "".join(item["text"] for item in items if item["type"] == "agent_message")
    return Result(
        text=text,
        reasoning="".join(item["text"] for item in items if item["type"] == "reasoning"),
        parsed=json.loads(text) if feature == "structured" else None,
    )


def run_codex_websocket(feature: str, gateway: str, folder: Path) -> Result:
    return run_codex(feature, gateway, folder, WEBSOCKET)


def run_gemini_cli(feature: str, gateway: str, folder: Path) -> Result:
    workplace = _workplace(folder)
    settings = folder / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(block("selectedType"))
    documented = block("GOOGLE_GEMINI_BASE_URL").replace(DOCUMENTED_URL, gateway)
    *exports, command = documented.replace(DOCUMENTED_MODEL, f"lab-{feature}").splitlines()
    environ = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    options = [option if option != "json" else "stream-json" for option in GEMINI_OPTIONS]
    output = run([str(installed("gemini")), *shlex.split(command)[1:], *options], workplace, folder, environ)
    events = list(_json_lines(output))
    pieces = [event["content"] for event in events if event["type"] == "message" and event["role"] == "assistant"]
    return Result(text="".join(pieces), pieces=pieces)


def run_opencode(provider: str) -> RunFeature:
    def run_feature(feature: str, gateway: str, folder: Path) -> Result:
        workplace = _workplace(folder)
        documented = block("opencode.ai/config.json").replace(DOCUMENTED_URL, gateway)
        (workplace / "opencode.json").write_text(documented.replace(DOCUMENTED_MODEL, f"lab-{feature}"))
        command = (
            block("opencode run").replace("responses/", f"{provider}/").replace(DOCUMENTED_MODEL, f"lab-{feature}")
        )
        options = ["--format", "json", "--auto", "--thinking"]
        output = run([str(installed("opencode")), *shlex.split(command)[1:], *options], workplace, folder, ALONE)
        events = list(_json_lines(output))
        return Result(
            text="".join(event["part"]["text"] for event in events if event["type"] == "text"),
            reasoning="".join(event["part"]["text"] for event in events if event["type"] == "reasoning"),
        )

    return run_feature


def run_aider(feature: str, gateway: str, folder: Path) -> Result:
    documented = block("aider --model").replace(DOCUMENTED_URL, gateway)
    *exports, command = documented.replace(DOCUMENTED_MODEL, f"lab-{feature}").splitlines()
    environ = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    quiet = [
        "--no-git",
        "--no-check-update",
        "--no-analytics",
        "--no-pretty",
        "--no-show-model-warnings",
        "--no-show-release-notes",
        "--yes-always",
    ]
    streaming = "--no-stream" if feature == "plain" else "--stream"
    program = str(PYTHONS / "aider" / "bin" / "aider")
    arguments = [*shlex.split(command)[1:], *quiet, streaming, "--edit-format", "ask"]
    output = run([program, *arguments], _workplace(folder), folder, {**environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    shown, _, answer = output.rpartition("► **ANSWER**") if "► **ANSWER**" in output else ("", "", output)
    lines = [line for line in answer.splitlines() if line.strip() and not line.startswith(AIDER_LINES)]
    return Result(text="\n".join(lines).strip(), reasoning=shown)


def _workplace(folder: Path) -> Path:
    workplace = folder / "workplace"
    workplace.mkdir()
    _write_note(workplace)
    return workplace


def _write_note(workplace: Path) -> None:
    (workplace / "greeting.txt").write_text(f"The note says: {NOTE}.\n")


def _json_lines(output: str) -> Iterator[Any]:
    """The lines that are JSON; some programs print warnings between them."""
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


AIDER_LINES: Final = (
    "Aider v",
    "HTTPSConnectionPool",  # it has no network access
    "Model:",
    "Git repo:",
    "Repo-map:",
    "Tokens:",
    "────",
    "Main model:",
    "Added ",
    "Warning",
    "Note:",
)
AGENTS: Final[dict[str, RunFeature]] = {
    "claude": run_claude_code,
    "codex": run_codex,
    "codex-websocket": run_codex_websocket,
    "gemini": run_gemini_cli,
    "opencode-responses": run_opencode("responses"),
    "opencode-messages": run_opencode("messages"),
    "opencode-chat": run_opencode("chat"),
    "aider": run_aider,
}
