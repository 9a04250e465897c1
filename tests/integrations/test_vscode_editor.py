"""The extension in a real VS Code, with a gateway whose upstreams are the strict test servers. `make test-vscode` runs
these tests.

Most tests send requests from another extension (`vscode.lm`); some use the window. No account is signed in."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import time
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
# One red pixel. The editor decodes images, so it must be valid.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
LOOK = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
AUTO, REQUIRED = 1, 2


class Gateway(NamedTuple):
    """A running gateway and its upstreams."""

    url: str
    config: Path
    folder: Path
    processes: ExitStack  # holds the process that runs now
    upstreams: dict[str, FakeServer]
    packages: list[Path]  # of the extension and of the test extension

    @property
    def log(self) -> str:
        return (self.folder / "gateway.log").read_text()

    def stop(self) -> None:
        self.processes.close()

    def start(self) -> None:
        """Starts or restarts the gateway at the same address, with the current configuration file."""
        self.stop()
        port = int(self.url.rpartition(":")[2])
        self.processes.enter_context(running_gateway(self.config, port, {"ALICE": KEY}, self.folder / "gateway.log"))


class Lab(NamedTuple):
    """An editor, and the gateway that its extension uses."""

    editor: Editor
    gateway: Gateway
    folder: Path

    def restart_gateway(self) -> None:
        """Restarts the gateway and waits until the editor lists all of its models again."""
        self.gateway.start()
        until(lambda: {model["id"] for model in self.editor.models()} == set(self.gateway.upstreams), SECONDS)


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
    """An editor in which the extension was installed and the key was set."""
    with _lab(gateway, tmp_path_factory.mktemp("fresh")) as lab:
        yield lab


@pytest.fixture(scope="module")
def lab(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An editor whose user added the models of the gateway, which enables the chat of the editor without an account."""
    with _lab(gateway, tmp_path_factory.mktemp("editor")) as lab:
        lab.editor.user("addModels", "chat", "Antiphon")
        lab.editor.load()
        until(lambda: bool(lab.editor.extension("isActive", extension="GitHub.copilot-chat")), SECONDS)
        lab.editor.user("selectedModel", "chat")
        yield lab


@contextmanager
def _lab(gateway: Gateway, folder: Path) -> Iterator[Lab]:
    workspace = folder / "workspace"
    (workspace / ".vscode").mkdir(parents=True)
    (workspace / "a.py").write_text('print("hello")\n')
    (workspace / "page.pdf").write_bytes(PDF)
    (workspace / "data.zip").write_bytes(b"PK\x03\x04\0\0\0\0")
    settings = {"antiphon.url": gateway.url, "chat.byokUtilityModelDefault": "mainAgent"}
    with running_editor(folder / "editor", gateway.packages, settings, workspace) as editor:
        set_key(editor, KEY)
        editor.user("selectedModel", "chat")
        yield Lab(editor, gateway, folder)


def test_editor_refuses_proposed_apis_as_vs_code_does(lab: Lab) -> None:
    """Otherwise the tests could pass with an extension that fails in VS Code."""
    with pytest.raises(EditorError, match="CANNOT use API proposal: languageModelProxy"):
        lab.editor.extension("useProposedApi")


# Requests through vscode.lm


def test_models_are_listed_for_other_extensions(lab: Lab) -> None:
    listed = {model["id"]: model for model in lab.editor.models()}
    assert set(listed) == set(lab.gateway.upstreams)
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
    sent = lab.gateway.upstreams["chat"].received[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"] * 49 + ["user"]
    assert [content_of(message) for message in sent] == [text_of(message["content"]) for message in history[:-1]]


def test_image_reaches_the_upstream(lab: Lab) -> None:
    """A-3."""
    lab.editor.ask("messages", [user(text("What is this?"), {"type": "data", "mimeType": "image/png", "data": PNG})])
    [question, image] = lab.gateway.upstreams["messages"].received[-1].json["messages"][0]["content"]
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
    [message] = lab.gateway.upstreams["responses"].received[-1].json["input"]
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
    assert lab.gateway.upstreams["chat"].received[-1].json["tool_choice"] == "required"


def test_thinking_arrives_and_is_returned_to_its_upstream(lab: Lab) -> None:
    """A-8, RSN-2."""
    options = {"modelOptions": {"reasoning": {"effort": "low"}}}
    history = [user(text("first"))]
    parts = lab.editor.ask("thinking", history, options=options)
    thinking = [part for part in parts if part["type"] == "thinking"]
    assert "".join(part["value"] for part in thinking) == "Let me see."
    assert text_of(parts) == "So."
    lab.editor.ask("thinking", [*history, assistant(*parts), user(text("second"))], options=options)
    blocks = lab.gateway.upstreams["thinking"].received[-1].json["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert blocks[0]["thinking"] == "Let me see."


def test_cancellation_ends_the_request_at_the_upstream(lab: Lab) -> None:
    before = lab.gateway.upstreams["hanging"].abandoned
    with pytest.raises(EditorError) as error:
        lab.editor.ask("hanging", [user(text("hi"))], cancelAfter=1)
    assert error.value.name == "Canceled"
    lab.gateway.upstreams["hanging"].wait_disconnected(before + 1)


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


def test_errors_for_missing_and_wrong_keys_say_what_to_do(lab: Lab) -> None:
    try:
        for key, problem in (("", "requires a key"), ("wrong", "rejected the key that is set for this address")):
            set_key(lab.editor, key)
            lab.editor.extension("start", command="workbench.action.chat.manage")
            message = lab.editor.user("see", f"{lab.gateway.url} {problem}")
            assert 'Run the command "Antiphon: Set Gateway Key".' in message
            lab.editor.user("press", "Escape")
            assert lab.editor.extension("models", vendor="antiphon") == []
    finally:
        set_key(lab.editor, KEY)
    assert lab.editor.models()


def test_error_for_a_stopped_gateway_says_what_to_do_and_its_models_return_by_themselves(lab: Lab) -> None:
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
    lab.editor.user("selectedModel", "chat")  # without a request
    assert text_of(lab.editor.ask("chat", [user(text("again"))])) == "You said: again"


def test_error_for_a_removed_model_says_what_to_do(lab: Lab) -> None:
    lab.editor.ask("gemini", [user(text("before"))])
    config = lab.gateway.config.read_text()
    try:
        lab.gateway.config.write_text(config.replace('"gemini"]', '"another"]'))
        lab.gateway.start()
        with pytest.raises(EditorError, match=r"does not serve this model.*'gemini'.*Choose another model") as error:
            lab.editor.ask("gemini", [user(text("after"))])
        assert error.value.code == "NotFound"
        assert "another" in {model["id"] for model in lab.editor.models()}
    finally:
        lab.gateway.config.write_text(config)
        lab.restart_gateway()


def test_error_for_a_gateway_that_does_not_answer_says_what_to_do(lab: Lab) -> None:
    """A server that accepts connections and never answers must not block the extensions that list models."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        lab.editor.extension("configure", name="antiphon.url", value=address)
        try:
            before = time.monotonic()
            assert lab.editor.extension("models", vendor="antiphon") == []
            assert time.monotonic() - before < 60
            lab.editor.extension("start", command="workbench.action.chat.manage")
            message = lab.editor.user("see", f"{address} did not answer within 10 seconds.")
            assert 'restart it with "antiphon serve", or correct the setting "antiphon.url".' in message
            lab.editor.user("press", "Escape")
        finally:
            lab.editor.extension("configure", name="antiphon.url", value=lab.gateway.url)
    assert lab.editor.models()


def test_workspace_cannot_redirect_the_key(lab: Lab) -> None:
    with OtherGateway() as other:
        settings = lab.folder / "workspace" / ".vscode" / "settings.json"
        settings.write_text(f'{{"antiphon.url": "{other.url}", "editor.tabSize": 7}}')
        try:
            until(lambda: lab.editor.extension("setting", name="editor.tabSize") == 7, SECONDS)  # the file was read
            assert lab.editor.extension("setting", name="antiphon.url") == lab.gateway.url
            assert text_of(lab.editor.ask("chat", [user(text("still here"))])) == "You said: still here"
        finally:
            settings.unlink()
        assert other.keys == []


def test_key_belongs_to_its_address_and_a_changed_address_requires_a_key(lab: Lab) -> None:
    with OtherGateway() as other:
        lab.editor.extension("configure", name="antiphon.url", value=other.url)
        try:
            assert lab.editor.user("see", f"The Antiphon gateway at {other.url} requires a key.")
            lab.editor.user("click", "Set Key")
            lab.editor.user("type", "another-key")
            until(lambda: "Bearer another-key" in other.keys, SECONDS)
        finally:
            lab.editor.extension("configure", name="antiphon.url", value=lab.gateway.url)
        assert set(other.keys) == {None, "Bearer another-key"}
    assert lab.editor.models()
    assert text_of(lab.editor.ask("chat", [user(text("back"))])) == "You said: back"


# The Chat view, without an account


def test_model_picker_shows_the_models_of_the_gateway(fresh: Lab) -> None:
    listed = fresh.editor.user("openModels", "chat")
    picture(fresh.editor, "vscode-models")
    fresh.editor.user("press", "Escape")
    for name in fresh.gateway.upstreams:
        assert name in listed.splitlines()


def test_participant_answers_in_the_chat_view(fresh: Lab) -> None:
    fresh.editor.user("newChat")
    fresh.editor.user("ask", "@antiphon good day")
    fresh.editor.user("answer", "You said: good day")
    fresh.editor.user("ask", "and good night")  # the participant stays selected
    fresh.editor.user("answer", "You said: and good night")
    picture(fresh.editor, "vscode-participant")
    sent = fresh.gateway.upstreams["chat"].received[-1].json["messages"]
    assert [content_of(message) for message in sent] == ["good day", "You said: good day", "and good night"]


def test_participant_runs_the_tool_that_the_user_names(fresh: Lab) -> None:
    fresh.editor.user("newChat")
    fresh.editor.user("ask", '@antiphon #look call asker_look {"path": "a.py"}')
    fresh.editor.user("answer", "asker_look says: saw a.py")


def test_participant_gets_no_image_until_models_were_added(fresh: Lab) -> None:
    """As docs/vscode.md says. The next test shows that the same action attaches an image afterwards."""
    fresh.editor.user("newChat")
    fresh.editor.user("pasteImage", PNG)
    fresh.editor.user("ask", "@antiphon without an image")
    fresh.editor.user("answer", "You said: without an image")
    [message] = fresh.gateway.upstreams["chat"].received[-1].json["messages"]
    assert message["content"] == "without an image"


def test_participant_sends_attachments_and_shows_thinking(lab: Lab) -> None:
    """Attachments of earlier questions are sent again with the conversation; thinking is not sent back as an answer."""
    lab.editor.user("newChat")
    lab.editor.user("selectModel", "chat", "thinking")
    names = ["page.pdf", "a.py", "data.zip"]
    lab.editor.extension("attach", paths=[str(lab.folder / "workspace" / name) for name in names])
    lab.editor.user("pasteImage", PNG)
    for name in (*names, "Pasted Image"):
        lab.editor.user("attachment", name)
    lab.editor.user("ask", "@antiphon What is this?")
    lab.editor.user("answer", "So.")
    assert lab.editor.user("quotation") == "Thinking: Let me see."
    assert lab.editor.user("see", 'The attachment "data.zip" was not sent')
    picture(lab.editor, "vscode-attachments")
    lab.editor.user("ask", "And now?")
    until(lambda: len(lab.gateway.upstreams["thinking"].received[-1].json["messages"]) == 3, SECONDS)
    lab.editor.user("answer", "So.")
    lab.editor.user("selectModel", "thinking", "chat")
    first, answer, second = lab.gateway.upstreams["thinking"].received[-1].json["messages"]
    [document, file, image, question] = first["content"]
    assert document["source"] == {
        "type": "base64",
        "media_type": "application/pdf",
        "data": base64.b64encode(PDF).decode(),
    }
    assert file["text"] == 'The file a.py:\n\nprint("hello")\n\n'
    assert image["source"]["media_type"] == "image/png"  # the browser encodes an image of the clipboard again
    assert base64.b64decode(image["source"]["data"]).startswith(b"\x89PNG")
    assert question["text"] == "What is this?"
    assert content_of(answer) == "So."
    assert content_of(second) == "And now?"


def test_participant_without_models_says_what_to_do(fresh: Lab) -> None:
    set_key(fresh.editor, "")
    try:
        until(lambda: fresh.editor.extension("models", vendor="antiphon") == [], SECONDS)
        fresh.editor.user("newChat")
        fresh.editor.user("ask", "@antiphon are you there?")
        fresh.editor.user("answer", f"{fresh.gateway.url} requires a key. Run the command")
    finally:
        set_key(fresh.editor, KEY)
    fresh.editor.user("selectedModel", "chat")


def test_stopping_the_answer_of_the_participant_ends_the_request_at_the_upstream(fresh: Lab) -> None:
    before = fresh.gateway.upstreams["hanging"].abandoned
    fresh.editor.user("newChat")
    fresh.editor.user("selectModel", "chat", "hanging")
    fresh.editor.user("ask", "@antiphon hi")
    fresh.editor.user("stopAnswer", "Hel")
    fresh.gateway.upstreams["hanging"].wait_disconnected(before + 1)
    fresh.editor.user("selectModel", "hanging", "chat")


def test_chat_view_requires_an_account_unless_models_were_added(fresh: Lab) -> None:
    """As docs/vscode.md says."""
    fresh.editor.user("newChat")
    fresh.editor.user("ask", "good day")
    fresh.editor.user("see", "Sign in to use GitHub Copilot")
    fresh.editor.user("press", "Escape")


def test_agent_of_the_chat_view_works_without_an_account(lab: Lab) -> None:
    """A-4, A-5, A-7: the agent of the editor with its prompt and its tools, after models of the gateway were added."""
    lab.editor.user("newChat")
    lab.editor.user("selectModel", "chat", "reader")
    lab.editor.user("ask", "What does a.py do?")
    lab.editor.user("answer", "It prints hello.")
    picture(lab.editor, "vscode-agent")
    lab.editor.user("selectModel", "reader", "chat")
    last = [received.json for received in lab.gateway.upstreams["reader"].received if b"tool_result" in received.body][
        -1
    ]
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


class OtherGateway:
    """A gateway that rejects every request and records the keys."""

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

    def __enter__(self) -> OtherGateway:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def set_key(editor: Editor, key: str) -> None:
    """Sets the key as the user does: with the command and its input box."""
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
    """Reads a.py with a tool of the editor and describes it. Answers other requests of the editor too, such as for a
    title."""
    if b"tool_result" in received.body:
        return turn(testing.text("It prints ", "`hello`."), testing.usage(5, 2))
    if b"read_file" not in received.body:
        return turn(testing.text("What a.py does"), testing.usage(5, 2))
    [folder] = set(re.findall(r"[^\s\"\\]*/workspace(?=[\s\"\\])", received.body.decode()))
    call = json.dumps({"filePath": f"{folder}/a.py", "startLine": 1, "endLine": 1})
    thinking = testing.reasoning("The file is small: I read all of it.")
    return turn(
        thinking, testing.text("I read the file."), testing.tool_call("call_1", "read_file", call), testing.usage(5, 2)
    )


def _config(servers: dict[str, FakeServer]) -> str:
    """Each server is an upstream with one model of the same name."""
    lines = ["[store]", 'url = "off"', "[[keys]]", 'name = "alice"', 'env = "ALICE"']
    for name, server in servers.items():
        lines += ["[[upstreams]]", f'name = "{name}"', f'dialect = "{DIALECTS.get(name, name)}"']
        lines += [f'base_url = "{server.base_url}"', f'models = ["{name}"]']
    return "\n".join(lines)


def packed(folder: Path, package: Path, *command: str) -> Path:
    """Packs an extension with this command."""
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
