"""The public API: its names, its types, its docstrings, and that the documentation uses nothing else."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import uvloop
from tests.client.conversing import gateway
from tests.public_names import PublicThing, examples_in, internal_imports, public_things
from tests.running import Running
from tests.sources import REPO

import antiphon
from antiphon import AsyncClient, Client, Turn, producer, testing, translate, types
from antiphon.producer.agent import UnboundedOutlet
from antiphon.protocol.emitters import NullEmitter
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter
from antiphon.system_stamps import SYSTEM_STAMPS
from antiphon.testing import ReceivedRequest, Reply, turn

THINGS = list(public_things())
EXAMPLES = [
    *(pytest.param(thing, id=thing.name) for thing in THINGS if thing.needs_example),
    *(
        pytest.param(PublicThing(module.__name__, module), id=module.__name__)
        for module in (antiphon, translate, types)
    ),
]
# Each class of the asynchronous API → the class of the blocking API that has the same methods.
MIRRORS = {
    "AsyncClient": "Client",
    "ResponseStream": "BlockingStream",
    "ResponseSocket": "BlockingSocket",
}
PAGES = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]


# Names


def test_antiphon_exports_these_names() -> None:
    assert sorted(antiphon.__all__) == sorted(
        [
            *["AsyncClient", "BlockingSocket", "BlockingStream", "Client", "Model", "ResponseSocket", "ResponseStream"],
            *["Retries", "Timeouts", "ToolCall", "ToolRun", "image_from_file"],
            *["Agent", "Turn", "agent"],
            *["AntiphonError", "ApiError", "ClientFault", "ConfigError", "InvalidJson", "InvalidTransition"],
            *["InvalidUnicode", "InvalidValue", "JsonTooDeep", "MissingField", "OrphanToolOutput", "ProfileError"],
            *["UnsupportedParameter", "UpstreamFault"],
            *["__version__", "translate"],
        ]
    )
    assert {*antiphon.__all__} <= {*dir(antiphon)}
    for name in antiphon.__all__:
        assert getattr(antiphon, name) is not None


def test_antiphon_has_no_other_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'antiphon' has no attribute 'nothing'"):
        antiphon.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_translate_exports_these_names() -> None:
    assert translate.__all__ == ["StreamTranslator", "TranslatedStream", "Translation", "request", "response", "stream"]


def test_types_exports_these_names() -> None:
    assert " ".join(types.__all__) == TYPES


def test_testing_exports_these_names() -> None:
    assert " ".join(testing.__all__) == TESTING


def test_producer_exports_these_names() -> None:
    assert " ".join(producer.__all__) == PRODUCER


# Types and docstrings


@pytest.mark.parametrize(("asynchronous", "blocking"), MIRRORS.items())
def test_blocking_classes_have_the_methods_of_the_asynchronous_ones(asynchronous: str, blocking: str) -> None:
    there, here = _public_members(asynchronous), _public_members(blocking)
    assert list(here) == list(there)
    for name, member in there.items():
        if isinstance(member, property):
            assert _result(here[name].fget) == _result(member.fget), name
        else:
            assert _parameters(here[name]) == _parameters(member), name
            assert _result(here[name]) == _result(member), name


def test_blocking_client_has_the_parameters_of_the_asynchronous_one() -> None:
    assert _parameters(Client.__init__) == _parameters(AsyncClient.__init__)


def test_public_calls_are_typed() -> None:
    for thing in THINGS:
        function = thing.value.fget if isinstance(thing.value, property) else thing.value
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, thing.name
        for parameter in signature.parameters.values():
            if parameter.name != "self":
                assert parameter.annotation is not inspect.Parameter.empty, f"{thing.name}({parameter.name})"
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                assert str(parameter.annotation).startswith("Unpack["), f"{thing.name}({parameter})"


def test_public_things_have_docstrings() -> None:
    assert [thing.name for thing in THINGS if not thing.docstring] == []
    for module in (types, testing, producer):
        values = {name: getattr(module, name) for name in module.__all__}
        things = {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)}
        assert [name for name, value in things.items() if not vars(value).get("__doc__", value.__doc__)] == []


@pytest.fixture(scope="module")
def running_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    def answer(received: ReceivedRequest) -> Reply:
        messages = received.json["messages"]
        if received.json.get("tools") and messages[-1]["role"] == "user":
            return turn(testing.tool_call("call_1", "weather", '{"city": "Lima"}'))
        return turn(testing.text("Hello, ", "world."), testing.usage(5, 2))

    with gateway(answer, store=f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db") as running:
        yield running


@pytest.mark.io
@pytest.mark.parametrize("thing", EXAMPLES)
def test_example_in_docstring_runs(
    thing: PublicThing, running_gateway: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """B-9."""
    examples = examples_in(thing.docstring)
    assert examples, "the docstring has no example"
    monkeypatch.setenv("ANTIPHON_URL", running_gateway.url)
    monkeypatch.chdir(tmp_path)
    for example in examples:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_example(thing, example))


async def _run_example(thing: PublicThing, example: str) -> None:
    is_asynchronous = "await " in example or "async " in example or any(f".{name}" in thing.name for name in MIRRORS)
    names = {name: getattr(antiphon, name) for name in antiphon.__all__}
    names |= {"Path": Path, "Request": Request, "turn": _turn()}
    client = AsyncClient(model="mock-1") if is_asynchronous else Client(model="mock-1")
    try:
        code = compile(example, thing.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, {**names, "client": client})
        if inspect.iscoroutine(result):
            await result
    finally:
        closed = client.close()
        if closed is not None:
            await closed


def _turn() -> Turn:
    request = Request(input="Hello.")
    response = make_initial_response(request, id="resp_1", created_at=1)
    writer = ResponseWriter(response, NullEmitter(), SYSTEM_STAMPS)
    writer.start()
    return Turn(request, writer, SYSTEM_STAMPS, UnboundedOutlet())


# Documentation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_imports_only_public_names(page: Path) -> None:
    assert [name for block in _python_blocks(page) for name in internal_imports(block)] == []


@pytest.mark.parametrize("example", sorted((REPO / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_imports_only_public_names(example: Path) -> None:
    assert internal_imports(example.read_text(encoding="utf-8")) == []


def test_internal_imports_finds_internal_names() -> None:
    source = "import antiphon.http.exchange\nfrom antiphon.protocol import codec\nfrom antiphon import Client, sse\nimport os\n"
    assert internal_imports(source) == ["antiphon.http.exchange", "antiphon.protocol.codec", "antiphon.sse"]
    assert internal_imports("import antiphon.types\nfrom antiphon import translate, testing\n") == []


def test_stability_page_names_every_public_module() -> None:
    page = (REPO / "docs" / "stability.md").read_text(encoding="utf-8")
    for module in ("antiphon", "antiphon.translate", "antiphon.types", "antiphon.producer", "antiphon.testing"):
        assert f"`{module}`" in page


@pytest.mark.io
def test_star_import_gives_the_public_names() -> None:
    program = "from antiphon import *\nprint(Client, agent, translate.request, ApiError)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def _python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _public_members(class_name: str) -> dict[str, Any]:
    members = vars(getattr(antiphon, class_name))
    return {name: members[name] for name in sorted(members) if not name.startswith("_")}


def _parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, hints.get(each.name)) for each in parameters]


def _result(function: Any) -> str:
    """The annotation of the result, with the names of the asynchronous API replaced."""
    result = str(inspect.signature(function).return_annotation).replace("AsyncIterator", "Iterator")
    for asynchronous, blocking in MIRRORS.items():
        result = result.replace(asynchronous, blocking)
    return result


TYPES = (
    "UNSET AdditionalTools AllowedTools AllowedToolsParam Annotation AnnotationAdded AnnotationParam ApplyPatchCall "
    "ApplyPatchCallOutput ApplyPatchTool ArgumentsDelta ArgumentsDone CodeInterpreterCall CodeInterpreterTool "
    "Compaction CompactionParam CompactionTrigger ComputerCall ComputerCallOutput ComputerTool Content ContentParam "
    "ContentPartAdded ContentPartDone CustomInputDelta CustomInputDone CustomTool CustomToolCall CustomToolCallOutput "
    "CustomToolCallOutputParam CustomToolCallParam Error ErrorEvent ErrorPayload FileSearchCall FileSearchTool "
    "FunctionCall FunctionCallOutput FunctionCallOutputParam FunctionCallParam FunctionTool FunctionToolChoice "
    "FunctionToolParam GrammarFormat HostedItem HostedTool ImageDetail ImageGenerationCall ImageGenerationTool "
    "IncompleteDetails Input InputAudio InputAudioData InputFile InputFileParam InputImage InputImageParam InputText "
    "InputTokensDetails InputVideo Item ItemAdded ItemDone ItemParam ItemReference ItemStatus JsonObjectFormat "
    "JsonSchemaFormat JsonSchemaFormatParam LocalShellCall LocalShellCallOutput LocalShellTool LogProb Loss Losses "
    "McpApprovalRequest McpApprovalResponse McpCall McpListTools McpTool Message MessageParam MessageRole Metadata "
    "NamespaceTool OutputText OutputTextDelta OutputTextDone OutputTextParam OutputTokensDetails Phase PromptCacheOptions Reasoning "
    "ReasoningConfig ReasoningConfigParam ReasoningDelta ReasoningDone ReasoningEffort ReasoningParam "
    "ReasoningSummary ReasoningText Refusal RefusalDelta RefusalDone Request RequestFields Response ResponseCompleted "
    "ResponseCreated ResponseFailed ResponseInProgress ResponseIncomplete ResponseQueued ResponseStatus ServiceTier "
    "ShellCall ShellCallOutput ShellTool SpecificCustom SpecificFunction SpecificToolChoice Stamps StreamEvent "
    "StreamOptions SummaryPartAdded SummaryPartDone SummaryText SummaryTextDelta SummaryTextDone TerminalEvent Text "
    "TextConfig TextFormat TextFormatOfTool TextFormatParam TextParam Tool ToolChoice ToolChoiceParam ToolChoiceValue "
    "ToolOutputContent ToolOutputContentParam ToolParam ToolResult ToolRunFields ToolSearchCall ToolSearchOutput "
    "ToolSearchTool ToolUse TopLogProb Truncation UnknownAnnotation UnknownContent UnknownEvent UnknownItem "
    "UnknownTool UnknownToolChoice UnsetType UrlCitation UrlCitationParam Usage Verbosity WebSearchCall "
    "WebSearchPreviewTool WebSearchTool"
)
TESTING = (
    "SSE_HEAD ChatServer FakeServer Gate GeminiLimits GeminiServer MessagesServer OllamaServer ReceivedRequest Reply "
    "ResponsesServer custom_call end error exactly finish gemini_error head interleaved messages_error ollama_error pause raw "
    "reasoning redacted refusal text tool_call turn usage wait whole"
)
PRODUCER = (
    "Agent AgentMessageItem AgentUsage CallbackEmitter CommandExecutionItem Emitter ErrorItem EventCollector "
    "FileChangeItem ItemCompleted ItemStarted ItemUpdated McpToolCallItem NullEmitter OpenResponsesCallback "
    "OpenResponsesConfig OpenResponsesIntegration OtherEvent OtherItem ReasoningItem ResponseBuilder SseEmitter "
    "ThreadCompleted ThreadError ThreadEvent ThreadItem ThreadStarted ToolInvocationItem ToolOutputItem Turn "
    "TurnCompleted TurnFailed TurnStarted WebSearchItem agent command_agent decode_thread_event load_settings"
)
