"""The extension in a real VS Code, before a gateway whose upstreams are the strict fakes. `make test-vscode` runs this.

One editor serves all tests. Most ask through another extension, as any extension would (`vscode.lm`); some sit at the window. No
account is signed in.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from tests.integrations.running_editor import (
    HERE,
    NODE,
    REPO,
    SECONDS,
    Editor,
    EditorError,
    free_port,
    running_editor,
    running_gateway,
    screenshots,
)
from tests.running import until

from antiphon import testing
from antiphon.testing import ChatServer, Gate, GeminiServer, MessagesServer, ResponsesServer, turn
from antiphon.testing.harness import FakeServer
from antiphon.testing.script import ReceivedRequest

pytestmark = pytest.mark.heavy

KEY = "alice-key-that-nobody-may-see-0123456789"
# One red pixel: the editor looks at images.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
LOOK = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
AUTO, REQUIRED = 1, 2


class Gateway(NamedTuple):
    """A gateway that runs, and what is behind it."""

    url: str
    config: Path
    folder: Path
    processes: ExitStack  # with the one that runs now
    fakes: dict[str, FakeServer]
    packages: list[Path]  # of the extension, and of another one

    @property
    def log(self) -> str:
        return (self.folder / "gateway.log").read_text()

    def stop(self) -> None:
        self.processes.close()

    def start(self) -> None:
        """At the address of the one before, if there was one, with what is in the configuration now."""
        self.stop()
        port = int(self.url.rpartition(":")[2])
        self.processes.enter_context(running_gateway(self.config, port, {"ALICE": KEY}, self.folder / "gateway.log"))


class Lab(NamedTuple):
    """An editor, and the gateway that its extension has the address of."""

    editor: Editor
    gateway: Gateway
    folder: Path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    gate = Gate()
    with ExitStack() as stack:
        servers: dict[str, FakeServer] = {
            "chat": ChatServer(),
            "responses": ResponsesServer(),
            "messages": MessagesServer(),
            "gemini": GeminiServer(),
            "thinking": MessagesServer(_thinking),
            "hanging": ChatServer(lambda _: turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))),
            "reader": MessagesServer(_reader),
        }
        for server in servers.values():
            stack.enter_context(server)
        stack.callback(gate.open)
        config = folder / "antiphon.toml"
        config.write_text(_config(servers))
        packages = [
            packed(EXTENSION, EXTENSION / "antiphon-models.vsix", "npm", "run", "package"),
            packed(HERE / "asker", folder / "asker.vsix", *VSCE, str(folder / "asker.vsix")),
        ]
        processes = stack.enter_context(ExitStack())
        running = Gateway(f"http://127.0.0.1:{free_port()}", config, folder, processes, servers, packages)
        running.start()
        yield running
        assert [refusal for server in servers.values() for refusal in server.refusals] == []


@pytest.fixture(scope="module")
def fresh(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An editor as it is after the extension was installed and the key was set."""
    with _lab(gateway, tmp_path_factory.mktemp("fresh")) as lab:
        yield lab


@pytest.fixture(scope="module")
def lab(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An editor whose user added the gateway's models to its list, which starts the editor's own chat, and loaded it again."""
    with _lab(gateway, tmp_path_factory.mktemp("editor")) as lab:
        lab.editor.user("addModels", "chat", "Antiphon")
        lab.editor.load()
        until(lambda: bool(lab.editor.extension("isActive", extension="GitHub.copilot-chat")), SECONDS)
        lab.editor.user("chosenModel", "chat")
        yield lab


@contextmanager
def _lab(gateway: Gateway, folder: Path) -> Iterator[Lab]:
    workspace = folder / "workspace"
    (workspace / ".vscode").mkdir(parents=True)
    (workspace / "a.py").write_text('print("hello")\n')
    settings = {"antiphon.url": gateway.url, "chat.byokUtilityModelDefault": "mainAgent"}
    with running_editor(folder / "editor", gateway.packages, settings, workspace) as editor:
        set_key(editor, KEY)
        editor.user("chosenModel", "chat")
        yield Lab(editor, gateway, folder)


# Asking through vscode.lm


def test_models_are_listed_for_other_extensions(lab: Lab) -> None:
    listed = {model["id"]: model for model in lab.editor.models()}
    assert set(listed) == set(lab.gateway.fakes)
    assert listed["chat"]["maxInputTokens"] > 0


@pytest.mark.parametrize("model", ["chat", "responses", "messages", "gemini"])
def test_text_is_answered_by_every_kind_of_upstream(lab: Lab, model: str) -> None:
    """A-1, A-2, A-8."""
    assert text_of(lab.editor.ask(model, [user(text("good day"))])) == "You said: good day"


def test_conversation_of_50_turns_reaches_the_upstream_whole(lab: Lab) -> None:
    history: list[dict[str, Any]] = []
    for number in range(50):
        history.append(user(text(f"question {number}")))
        answer = text_of(lab.editor.ask("chat", history))
        assert answer == f"You said: question {number}"
        history.append(assistant(text(answer)))
    sent = lab.gateway.fakes["chat"].received[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"] * 49 + ["user"]
    assert content_of(sent[0]) == "question 0"


def test_image_reaches_the_upstream(lab: Lab) -> None:
    """A-3."""
    lab.editor.ask("messages", [user(text("What is this?"), {"type": "data", "mimeType": "image/png", "data": PNG})])
    [question, image] = lab.gateway.fakes["messages"].received[-1].json["messages"][0]["content"]
    assert question["text"] == "What is this?"
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}


def test_json_text_and_other_data_reach_the_upstream(lab: Lab) -> None:
    """A-3."""
    pdf = base64.b64encode(b"%PDF-1.7").decode()
    note = base64.b64encode("Grüße".encode()).decode()
    parts: list[dict[str, Any]] = [
        {"type": "json", "value": {"a": [1, 2]}},
        {"type": "data", "mimeType": "application/json", "data": base64.b64encode(b'{"b": 3}').decode()},
        {"type": "data", "mimeType": "text/plain", "data": note},
        {"type": "data", "mimeType": "application/pdf", "data": pdf},
    ]
    lab.editor.ask("responses", [user(text("Read these."), *parts)])
    [message] = lab.gateway.fakes["responses"].received[-1].json["input"]
    *texts, file = message["content"]
    assert [part["text"].replace("\t", "") for part in texts] == [
        "Read these.",
        '{\n"a": [\n1,\n2\n]\n}',
        '{"b": 3}',
        "Grüße",
    ]
    assert file["file_data"] == f"data:application/pdf;base64,{pdf}"


@pytest.mark.parametrize("model", ["chat", "responses", "messages", "gemini"])
def test_tool_call_and_its_result_make_the_round_trip(lab: Lab, model: str) -> None:
    """A-4, A-5, A-7."""
    options = {"tools": [LOOK], "toolMode": AUTO}
    history = [user(text('call look {"path": "a.py"}'))]
    [call] = lab.editor.ask(model, history, options=options)
    assert (call["type"], call["name"], call["input"]) == ("tool_call", "look", {"path": "a.py"})
    result = {"type": "tool_result", "callId": call["callId"], "content": [text("empty")]}
    answer = lab.editor.ask(model, [*history, assistant(call), user(result)], options=options)
    assert text_of(answer) == "look says: empty"


def test_required_tool_mode_makes_the_model_call(lab: Lab) -> None:
    """A-7."""
    [call] = lab.editor.ask("chat", [user(text("good day"))], options={"tools": [LOOK], "toolMode": REQUIRED})
    assert (call["type"], call["name"]) == ("tool_call", "look")
    assert lab.gateway.fakes["chat"].received[-1].json["tool_choice"] == "required"


def test_thinking_arrives_and_goes_back_to_its_maker(lab: Lab) -> None:
    """A-8, RSN-2."""
    options = {"modelOptions": {"reasoning": {"effort": "low"}}}
    history = [user(text("first"))]
    parts = lab.editor.ask("thinking", history, options=options)
    thinking = [part for part in parts if part["type"] == "thinking"]
    assert "".join(part["value"] for part in thinking) == "Let me see."
    assert text_of(parts) == "So."
    lab.editor.ask("thinking", [*history, assistant(*parts), user(text("second"))], options=options)
    back = lab.gateway.fakes["thinking"].received[-1].json["messages"][1]["content"]
    assert [block["type"] for block in back] == ["thinking", "text"]
    assert back[0]["thinking"] == "Let me see."


def test_cancellation_ends_the_request_at_the_upstream(lab: Lab) -> None:
    before = lab.gateway.fakes["hanging"].abandoned
    with pytest.raises(EditorError) as refused:
        lab.editor.ask("hanging", [user(text("hi"))], cancelAfter=1)
    assert refused.value.name == "Canceled"
    lab.gateway.fakes["hanging"].wait_disconnected(before + 1)


def test_tokens_are_counted_without_a_request(lab: Lab) -> None:
    long = lab.editor.extension("count", vendor="antiphon", model="chat", text="How long is this? " * 100)
    result = {"type": "tool_result", "callId": "c", "content": [text("empty")]}
    image = {"type": "data", "mimeType": "image/png", "data": PNG}
    message = user(text("How long is this?"), image, result)
    short = lab.editor.extension("count", vendor="antiphon", model="chat", message=message)
    assert 400 < long < 700
    assert short > 1000  # an image
    assert "count_tokens" not in lab.gateway.log


# The address and the key


def test_missing_and_wrong_keys_are_told_with_what_to_do(lab: Lab) -> None:
    try:
        for key, problem in (("", "asks for a key"), ("wrong", "refused the key that is set for it")):
            set_key(lab.editor, key)
            lab.editor.extension("start", command="workbench.action.chat.manage")
            told = lab.editor.user("see", f"{lab.gateway.url} {problem}")
            assert 'Run the command "Antiphon: Set Gateway Key".' in told
            lab.editor.user("press", "Escape")
            assert lab.editor.extension("models", vendor="antiphon") == []
    finally:
        set_key(lab.editor, KEY)
    assert lab.editor.models()


def test_stopped_gateway_is_told_and_its_return_is_noticed(lab: Lab) -> None:
    lab.editor.ask("chat", [user(text("before"))])
    lab.gateway.stop()
    try:
        with pytest.raises(EditorError, match=r'cannot be reached.*Start it with "antiphon serve"'):
            lab.editor.ask("chat", [user(text("meanwhile"))])
        lab.editor.user("newChat")
        lab.editor.user("ask", "@antiphon are you there?")
        lab.editor.user("answer", f"The Antiphon gateway at {lab.gateway.url} cannot be reached (ECONNREFUSED).")
        assert lab.editor.extension("models", vendor="antiphon") == []
    finally:
        lab.gateway.start()
    lab.editor.user("chosenModel", "chat")  # without anybody asking for it
    assert text_of(lab.editor.ask("chat", [user(text("again"))])) == "You said: again"


def test_model_that_is_gone_is_told_with_what_to_do(lab: Lab) -> None:
    lab.editor.ask("gemini", [user(text("before"))])
    whole = lab.gateway.config.read_text()
    try:
        lab.gateway.config.write_text(whole.replace('"gemini"]', '"another"]'))
        lab.gateway.start()
        with pytest.raises(EditorError, match=r"does not serve this model.*'gemini'.*Choose another model") as refused:
            lab.editor.ask("gemini", [user(text("after"))])
        assert refused.value.code == "NotFound"
        assert "another" in {model["id"] for model in lab.editor.models()}
    finally:
        lab.gateway.config.write_text(whole)
        lab.gateway.start()


def test_workspace_cannot_redirect_the_key(lab: Lab) -> None:
    with Elsewhere() as elsewhere:
        settings = lab.folder / "workspace" / ".vscode" / "settings.json"
        settings.write_text(f'{{"antiphon.url": "{elsewhere.url}", "editor.tabSize": 7}}')
        try:
            until(lambda: lab.editor.extension("setting", name="editor.tabSize") == 7, SECONDS)  # it was read
            assert lab.editor.extension("setting", name="antiphon.url") == lab.gateway.url
            assert text_of(lab.editor.ask("chat", [user(text("still here"))])) == "You said: still here"
        finally:
            settings.unlink()
        assert elsewhere.keys == []


def test_key_stays_with_its_address_and_a_changed_address_asks_again(lab: Lab) -> None:
    with Elsewhere() as elsewhere:
        lab.editor.extension("configure", name="antiphon.url", value=elsewhere.url)
        try:
            assert lab.editor.user("see", f"The Antiphon gateway at {elsewhere.url} asks for a key.")
            lab.editor.user("click", "Set Key")
            lab.editor.user("type", "another-key")
            until(lambda: "Bearer another-key" in elsewhere.keys, SECONDS)
        finally:
            lab.editor.extension("configure", name="antiphon.url", value=lab.gateway.url)
        assert set(elsewhere.keys) == {None, "Bearer another-key"}
    assert text_of(lab.editor.ask("chat", [user(text("back"))])) == "You said: back"


# The Chat view, where nobody is signed in


def test_model_picker_shows_the_models_of_the_gateway(fresh: Lab) -> None:
    listed = fresh.editor.user("openModels", "chat")
    picture(fresh.editor, "vscode-models")
    fresh.editor.user("press", "Escape")
    for name in fresh.gateway.fakes:
        assert name in listed.splitlines()


def test_participant_answers_in_the_chat_view(fresh: Lab) -> None:
    fresh.editor.user("newChat")
    fresh.editor.user("ask", "@antiphon good day")
    fresh.editor.user("answer", "You said: good day")
    fresh.editor.user("ask", "and good night")  # the participant stays
    fresh.editor.user("answer", "You said: and good night")
    picture(fresh.editor, "vscode-participant")
    sent = fresh.gateway.fakes["chat"].received[-1].json["messages"]
    assert [content_of(message) for message in sent] == ["good day", "You said: good day", "and good night"]


def test_participant_runs_the_tool_that_the_user_names(fresh: Lab) -> None:
    fresh.editor.user("newChat")
    fresh.editor.user("ask", '@antiphon #look call asker_look {"path": "a.py"}')
    fresh.editor.user("answer", "asker_look says: saw a.py")


def test_chat_view_wants_an_account_unless_models_were_added(fresh: Lab) -> None:
    """What the page says of it."""
    fresh.editor.user("newChat")
    fresh.editor.user("ask", "good day")
    fresh.editor.user("see", "Sign in to use GitHub Copilot")
    fresh.editor.user("press", "Escape")


def test_agent_of_the_chat_view_works_without_an_account(lab: Lab) -> None:
    """A-4, A-5, A-7: the editor's own agent, its prompt and its tools, once models of the gateway were added."""
    lab.editor.user("newChat")
    lab.editor.user("chooseModel", "chat", "reader")
    lab.editor.user("ask", "What does a.py do?")
    lab.editor.user("answer", "It prints hello.")
    picture(lab.editor, "vscode-agent")
    lab.editor.user("chooseModel", "reader", "chat")
    last = [received.json for received in lab.gateway.fakes["reader"].received if b"tool_result" in received.body][-1]
    assert "read_file" in {tool["name"] for tool in last["tools"]}
    assert [block["type"] for block in last["messages"][-2]["content"]] == ["thinking", "text", "tool_use"]
    [result] = [block for block in last["messages"][-1]["content"] if block["type"] == "tool_result"]
    assert 'print("hello")' in str(result["content"])
    until(lambda: '"model":"reader"' in lab.gateway.log)
    losses = [line.partition('"losses":')[2] for line in lab.gateway.log.splitlines() if '"model":"reader"' in line]
    assert set(losses) == {"0}"}


def test_inline_chat_works_without_an_account(lab: Lab) -> None:
    lab.editor.user("askInline", "a.py", "good evening")
    lab.editor.user("see", "You said: good evening")
    lab.editor.user("press", "Escape")


def test_custom_endpoint_of_the_editor_works_with_every_api(lab: Lab) -> None:
    """The other way to use the gateway, without the extension."""
    apis = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
    models = [
        {"id": name, "name": name, "url": f"{lab.gateway.url}/v1/{path}", **LIMITS} for name, path in apis.items()
    ]
    for model, api in zip(models, ("chat-completions", "responses", "messages"), strict=True):
        model["apiType"] = api
    group = {"name": "Gateway", "vendor": "customendpoint", "apiKey": KEY, "models": models}
    lab.editor.extension("start", command="lm.addLanguageModelsProviderGroup", args=[group])
    assert {model["id"] for model in lab.editor.models("customendpoint")} == set(apis)
    for name, path in apis.items():
        assert text_of(lab.editor.ask(name, [user(text("good day"))], vendor="customendpoint")) == "You said: good day"
        until(lambda path=path: f'"path":"/v1/{path}"' in lab.gateway.log)  # type: ignore[misc]


# Helpers


def picture(editor: Editor, name: str) -> None:
    editor.user("screenshot", str(screenshots() / f"{name}.png"))


class Elsewhere:
    """A gateway that refuses everybody, and remembers the keys that came."""

    def __init__(self) -> None:
        keys: list[str | None] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys.append(self.headers["authorization"])
                body = b'{"error": {"name": "NoPermissions", "code": "invalid_api_key", "message": "no"}}'
                self.send_response(401)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.keys = keys
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Elsewhere:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def set_key(editor: Editor, key: str) -> None:
    """As the user does: by the command, in the box that asks for it."""
    editor.extension("start", command="antiphon.setKey")
    editor.user("type", key)


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "User", "content": parts}


def assistant(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "Assistant", "content": parts}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "value": value}


def text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(part["value"] for part in parts if part["type"] == "text")


def content_of(message: dict[str, Any]) -> Any:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


def _thinking(received: ReceivedRequest) -> testing.Reply:
    del received
    return turn(testing.reasoning("Let me ", "see."), testing.text("So."), testing.usage(5, 2))


def _reader(received: ReceivedRequest) -> testing.Reply:
    """Reads a.py with the editor's tool and says what it does; what the editor asks besides, such as a title, is answered too."""
    if b"tool_result" in received.body:
        return turn(testing.text("It prints ", "`hello`."), testing.usage(5, 2))
    if b"read_file" not in received.body:
        return turn(testing.text("What a.py does"), testing.usage(5, 2))
    [folder] = set(re.findall(r"[^\s\"\\]*/workspace(?=[\s\"\\])", received.body.decode()))
    call = json.dumps({"filePath": f"{folder}/a.py", "startLine": 1, "endLine": 1})
    thought = testing.reasoning("The file is small: I read all of it.")
    return turn(
        thought, testing.text("I read the file."), testing.tool_call("call_1", "read_file", call), testing.usage(5, 2)
    )


def _config(servers: dict[str, FakeServer]) -> str:
    """Each server is an upstream with one model of its name."""
    lines = ["[store]", 'url = "off"', "[[keys]]", 'name = "alice"', 'env = "ALICE"']
    for name, server in servers.items():
        lines += ["[[upstreams]]", f'name = "{name}"', f'dialect = "{DIALECTS.get(name, name)}"']
        lines += [f'base_url = "{server.base_url}"', f'models = ["{name}"]']
    return "\n".join(lines)


def packed(folder: Path, package: Path, *command: str) -> Path:
    """An extension as the package that the command makes of it."""
    environ = {"PATH": f"{NODE.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    done = subprocess.run(command, cwd=folder, env=environ, check=False, capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return package


LIMITS = {"toolCalling": True, "vision": True, "maxInputTokens": 100_000, "maxOutputTokens": 8_000}
DIALECTS = {"thinking": "messages", "hanging": "chat", "reader": "messages"}
EXTENSION = REPO / "integrations" / "vscode"
VSCE = (
    str(EXTENSION / "node_modules" / ".bin" / "vsce"),
    "package",
    "--skip-license",
    "--allow-missing-repository",
    "--out",
)
