"""Hub requests as clients send them: conversations of every kind of item and content, in good order or in none at all.

`conversations()` are lists of input items, `requests()` whole requests around them. Every text in one request is unlike every
other: it ends in a mark of its own (`‹7›`), so that a law can ask of each where it went; `marks_of` lists them. `orderly`
conversations are as a well-behaved client sends them (each call answered right after its turn, nothing beyond text, images and
function calls); the others hold everything, and their items stand in any order. Orphans, outputs whose call is nowhere, come only
when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolOutputContentParam,
    ToolResult,
    ToolUse,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.items import (
    AdditionalTools,
    CompactionParam,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    McpCall,
    MessageParam,
    MessageRole,
    ReasoningParam,
    ToolSearchCall,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    StreamOptions,
    TextFormat,
    TextParam,
)
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    GrammarFormat,
    McpTool,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    SpecificToolChoice,
    TextFormatOfTool,
    ToolParam,
    ToolSearchTool,
    UnknownTool,
    UnknownToolChoice,
    WebSearchTool,
)

MARK = re.compile(r"‹\d+›")
#: Letters of all widths, the line ends that are none, quotes, and what looks like the protocol's own.
LETTERS = st.text(alphabet=st.sampled_from('ab "\\\n\r\t\x00é中\U0001f600\u2028\u0085{}[]<>'), max_size=6)
NAMES = st.sampled_from(["search", "open", "apply_patch", "ns__search", "a-b", "x" * 64])
NAMESPACES = st.sampled_from(["ns", "mcp_files", "n" * 60])
CALL_IDS = st.sampled_from(["call_1", "call_2", "call_3", "a:b/c", "i" * 64])


def conversations(*, orderly: bool = False, orphans: bool = False) -> st.SearchStrategy[list[ItemParam]]:
    """The input of a request, as items."""
    return _conversation(orderly, orphans)


def requests(*, orderly: bool = False, orphans: bool = False) -> st.SearchStrategy[Request]:
    """A request that has something to say: a conversation, tools, settings."""
    return _request(orderly, orphans)


def marks_of(text: str) -> list[str]:
    """The marks of all texts that are part of `text`."""
    return MARK.findall(text)


@st.composite
def _conversation(draw: st.DrawFn, orderly: bool, orphans: bool) -> list[ItemParam]:
    return _Author(draw).conversation(orderly=orderly, orphans=orphans)


@st.composite
def _request(draw: st.DrawFn, orderly: bool, orphans: bool) -> Request:
    return _Author(draw).request(orderly=orderly, orphans=orphans)


class _Author:
    """Writes one request; counts its texts."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def request(self, *, orderly: bool, orphans: bool) -> Request:
        items = self.conversation(orderly=orderly, orphans=orphans)
        tools = self._plain_tools() if orderly else self._tools()
        return Request(
            model=self._one("m", "provider/model"),
            instructions=self._one(UNSET, None, self.text()),
            input=items if orderly else self._one(items, items, items, self.text()),
            tools=tools or UNSET,
            tool_choice=UNSET if orderly else self._tool_choice(),
            parallel_tool_calls=self._one(UNSET, True, False),
            text=UNSET if orderly else self._text_param(),
            reasoning=UNSET if orderly else self._reasoning_config(),
            temperature=self._one(UNSET, None, 0, 0.7),
            top_p=self._one(UNSET, 0.5),
            presence_penalty=self._one(UNSET, -1),
            frequency_penalty=self._one(UNSET, 1.5),
            max_output_tokens=self._one(UNSET, None, 16, 4096),
            top_logprobs=self._one(UNSET, 0, 3),
            include=self._one(UNSET, ["message.output_text.logprobs"], ["reasoning.encrypted_content"]),
            metadata=self._one(UNSET, {}, {"session": "s"}),
            service_tier=self._one(UNSET, "auto", "flex"),
            safety_identifier=self._one(UNSET, "who"),
            prompt_cache_key=self._one(UNSET, "key"),
            user=self._one(UNSET, "u"),
            stream=self._one(UNSET, None, False, True),
            stream_options=self._one(UNSET, StreamOptions(include_obfuscation=False)),
            store=self._one(UNSET, False),
            truncation=self._one(UNSET, "disabled"),
            client_metadata=self._one(UNSET, {"window": "w"}),
            extra=UNSET if orderly else self._extra("top_k", "chat:stop", "chat:seed"),
        )

    def conversation(self, *, orderly: bool, orphans: bool) -> list[ItemParam]:
        kinds: list[Callable[[bool], list[ItemParam]]] = [
            self._calls,
            self._calls,
            self._user,
            self._assistant,
            self._system,
        ]
        if not orderly:
            kinds += [self._calls, self._reasoning, self._other, self._inline, self._unanswered]
        if orphans:
            kinds.append(self._orphan)
        steps = self._draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
        items = [*self._user(orderly), *(item for step in steps for item in step(orderly))]
        return items if orderly or self._draw(st.booleans()) else self._draw(st.permutations(items))

    def text(self) -> str:
        self._count += 1
        return f"{self._draw(LETTERS)}‹{self._count}›"

    def _one(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    # Items.

    def _user(self, orderly: bool) -> list[ItemParam]:
        count = self._one(0, 1, 2, 3)
        parts: list[ContentParam] = [self._plain_image() if orderly else self._user_part() for _ in range(count)]
        text = InputText(text=self.text())
        return [self._message("user", self._one(self.text(), [text], [*parts, text] if orderly else parts))]

    def _assistant(self, orderly: bool) -> list[ItemParam]:
        if orderly:
            return [self._message("assistant", [OutputTextParam(text=self.text())])]
        parts = [self._assistant_part() for _ in range(self._one(0, 1, 2, 3))]
        return [self._message("assistant", self._one("", self.text(), parts))]

    def _system(self, orderly: bool) -> list[ItemParam]:
        role = self._one("system", "developer")
        if orderly:
            return [self._message(role, self.text())]
        parts: list[ContentParam] = [
            InputText(text=self.text()),
            *([self._image()] if self._draw(st.booleans()) else []),
        ]
        return [self._message(role, self._one("", self.text(), parts))]

    def _calls(self, orderly: bool) -> list[ItemParam]:
        """Calls of one turn with their outputs after them; perhaps with words before them, or between them and the
        outputs."""
        ids = self._draw(st.lists(CALL_IDS, min_size=1, max_size=3, unique=True))
        calls = [self._call(call_id, plain=orderly) for call_id in ids]
        if orderly:
            before = (
                [self._message("assistant", [OutputTextParam(text=self.text())])] if self._draw(st.booleans()) else []
            )
            return [*before, *calls, *(self._plain_output(call) for call in calls)]
        outputs = [self._output(call) for call in calls]
        before = self._one([], self._assistant(False), self._reasoning(False))
        between = self._one([], self._assistant(False), self._user(False), self._reasoning(False))
        again = self._one([], [], [self._output(calls[0])])
        return [*before, *calls, *between, *self._draw(st.permutations(outputs)), *again]

    def _unanswered(self, _: bool) -> list[ItemParam]:
        return [self._call(self._draw(CALL_IDS), plain=False)]

    def _orphan(self, _: bool) -> list[ItemParam]:
        return [FunctionCallOutputParam(call_id="call_of_nobody", output=self._tool_output())]

    def _inline(self, _: bool) -> list[ItemParam]:
        """E-1, E-2: calls and results written inside messages."""
        call_id = self._draw(CALL_IDS)
        use = ToolUse(id=call_id, name=self._draw(NAMES), input={"q": self.text()})
        content = self._one(self.text(), [{"type": "text", "text": self.text()}, self.text()], UNSET)
        result = ToolResult(tool_use_id=call_id, content=content, is_error=self._one(UNSET, True))
        around: list[ContentParam] = [InputText(text=self.text())]
        return [
            self._message("assistant", [OutputTextParam(text=self.text()), use]),
            self._message("user", self._draw(st.permutations([result, *around]))),
        ]

    def _reasoning(self, _: bool) -> list[ItemParam]:
        return [
            ReasoningParam(
                summary=[SummaryText(text=self.text()) for _ in range(self._one(0, 1, 2))],
                content=self._one(UNSET, None, [], [ReasoningText(text=self.text())]),
                encrypted_content=self._one(UNSET, self.text()),
            )
        ]

    def _other(self, _: bool) -> list[ItemParam]:
        """What no chat-like server has a place for, and tools given as an item."""
        items: list[ItemParam] = [
            WebSearchCall(id="ws_1", status="completed", action={"query": self.text()}),
            McpCall(server_label="s", name="n", arguments=self.text(), output=self.text()),
            ToolSearchCall(arguments={"q": self.text()}),
            CompactionParam(encrypted_content=self.text()),
            CompactionTrigger(),
            UnknownItem(kind="acme:thing", raw=self._raw({"type": "acme:thing", "text": self.text()})),
            AdditionalTools(tools=self._tools(), extra=self._extra("note")),
        ]
        return [self._draw(st.sampled_from(items))]

    def _message(self, role: MessageRole, content: str | list[ContentParam]) -> MessageParam:
        return MessageParam(role=role, content=content)

    def _call(self, call_id: str, *, plain: bool) -> FunctionCallParam | CustomToolCallParam:
        name, text = self._draw(NAMES), self.text()
        if not plain and self._draw(st.booleans()):
            return CustomToolCallParam(
                call_id=call_id,
                name=name,
                input=text,
                namespace=self._draw(st.just(UNSET) | NAMESPACES),
                extra=self._extra("x"),
            )
        arguments = self._raw({"q": text})
        return FunctionCallParam(
            call_id=call_id,
            name=name,
            arguments=bytes(arguments).decode(),
            namespace=UNSET if plain else self._draw(st.just(UNSET) | NAMESPACES),
            id=self._one(UNSET, None, "fc_1"),
        )

    def _output(self, call: FunctionCallParam | CustomToolCallParam) -> ItemParam:
        if isinstance(call, CustomToolCallParam):
            return CustomToolCallOutputParam(call_id=call.call_id, output=self._tool_output())
        return FunctionCallOutputParam(call_id=call.call_id, output=self._tool_output())

    def _plain_output(self, call: FunctionCallParam | CustomToolCallParam) -> ItemParam:
        return FunctionCallOutputParam(call_id=call.call_id, output=self.text())

    # Content.

    def _user_part(self) -> ContentParam:
        kinds: list[Callable[[], ContentParam]] = [
            lambda: InputText(text=self.text(), extra=self._extra("cache_control")),
            lambda: Text(text=self.text()),
            self._image,
            self._image_without_address,
            self._file,
            lambda: InputVideo(video_url=f"https://v/{self.text()}"),
            lambda: InputAudio(input_audio=InputAudioData(data=self.text(), format="wav")),
            self._unknown_part,
        ]
        return self._draw(st.sampled_from(kinds))()

    def _assistant_part(self) -> ContentParam:
        kinds: list[Callable[[], ContentParam]] = [
            lambda: OutputTextParam(text=self.text(), annotations=[]),
            lambda: OutputTextParam(text=self.text(), annotations=[self._citation()]),
            lambda: Refusal(refusal=self.text()),
            lambda: Text(text=""),
            self._image,
            self._unknown_part,
        ]
        return self._draw(st.sampled_from(kinds))()

    def _tool_output(self) -> str | list[ToolOutputContentParam]:
        if self._draw(st.booleans()):
            return self.text()
        kinds: list[Callable[[], ToolOutputContentParam]] = [
            lambda: InputText(text=self.text()),
            lambda: InputVideo(video_url=f"https://v/{self.text()}"),
            self._image,
            self._file,
            self._unknown_part,
        ]
        return [self._draw(st.sampled_from(kinds))() for _ in range(self._one(0, 1, 2, 3))]

    def _image(self) -> InputImageParam:
        return InputImageParam(image_url=f"https://i/{self.text()}", detail=self._one(UNSET, None, "low", "original"))

    def _plain_image(self) -> InputImageParam:
        return InputImageParam(image_url=f"https://i/{self.text()}", detail=self._one(UNSET, "low", "high"))

    def _image_without_address(self) -> InputImageParam:
        return InputImageParam(file_id=self.text())

    def _file(self) -> InputFileParam:
        return InputFileParam(
            filename=self._one(UNSET, self.text()),
            file_data=self._one(UNSET, self.text()),
            file_url=self._one(UNSET, f"https://f/{self.text()}"),
            file_id=self._one(UNSET, self.text()),
        )

    def _citation(self) -> UrlCitationParam:
        return UrlCitationParam(start_index=0, end_index=1, url="https://c", title=self.text())

    def _unknown_part(self) -> UnknownContent:
        return UnknownContent(kind="acme:part", raw=self._raw({"type": "acme:part", "text": self.text()}))

    # Tools and settings.

    def _plain_tools(self) -> list[ToolParam]:
        names = self._draw(st.lists(NAMES, max_size=3, unique=True))
        return [
            FunctionToolParam(
                name=name, description=self.text(), parameters={"type": "object"}, strict=self._one(True, False)
            )
            for name in names
        ]

    def _tools(self) -> list[ToolParam]:
        return [self._tool() for _ in range(self._one(0, 1, 2, 3))]

    def _tool(self) -> ToolParam:
        members: list[FunctionToolParam | CustomTool | UnknownTool] = [
            self._function_tool(),
            self._custom_tool(),
            UnknownTool(kind="acme:tool", raw=Raw(b'{"type":"acme:tool"}')),
        ]
        tools: list[ToolParam] = [
            self._function_tool(),
            self._custom_tool(),
            NamespaceTool(name=self._draw(NAMESPACES), description=self.text(), tools=members),
            WebSearchTool(),
            McpTool(server_label=self.text()),
            ToolSearchTool(execution="client"),
            UnknownTool(kind="acme:tool", raw=Raw(b'{"type":"acme:tool"}')),
        ]
        return self._draw(st.sampled_from(tools))

    def _function_tool(self) -> FunctionToolParam:
        return FunctionToolParam(
            name=self._draw(NAMES),
            description=self._one(UNSET, None, self.text()),
            parameters=self._one(UNSET, None, {"type": "object", "properties": {"q": {"title": self.text()}}}),
            strict=self._one(UNSET, None, True, False),
            defer_loading=self._one(UNSET, True),
            extra=self._extra("cache_control"),
        )

    def _custom_tool(self) -> CustomTool:
        grammar = GrammarFormat(syntax="lark", definition=self.text())
        return CustomTool(
            name=self._draw(NAMES | st.just("patch the file!")),
            description=self._one(UNSET, self.text()),
            format=self._one(UNSET, None, TextFormatOfTool(), grammar),
        )

    def _tool_choice(self) -> Any:
        named: list[SpecificToolChoice] = [
            SpecificFunction(name=self._draw(NAMES)),
            SpecificCustom(name=self._draw(NAMES), namespace="ns"),
        ]
        mode = self._one(UNSET, "auto", "required", "none")
        choices: list[Any] = [
            *named,
            UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}')),
            "auto",
            "none",
            "required",
        ]
        choices += [
            AllowedToolsParam(tools=named, mode=mode),
            AllowedToolsParam(tools=named[:1], mode=mode),
            UNSET,
            None,
        ]
        return self._one(*choices)

    def _text_param(self) -> TextParam:
        schema = JsonSchemaFormatParam(
            name="answer", description=self.text(), schema={"title": self.text()}, strict=self._one(UNSET, True)
        )
        bare = JsonSchemaFormatParam()
        format = self._one(UNSET, None, TextFormat(), JsonObjectFormat(), schema, bare)
        return TextParam(format=format, verbosity=self._one(UNSET, None, "low"))

    def _reasoning_config(self) -> ReasoningConfigParam:
        return ReasoningConfigParam(effort=self._one(UNSET, None, "none", "high"), summary=self._one(UNSET, "auto"))

    def _extra(self, *names: str) -> Any:
        """Unknown fields, now and then."""
        given = [name for name in names if self._one(False, False, True)]
        return {name: self._raw({"of": self.text()}) for name in given} or UNSET

    def _raw(self, value: Any) -> Raw:
        return Raw(msgspec.json.encode(value))
