"""Requests of every kind that a quirk may meet. Every text in them is a word of its own, so that a lost or moved one is
seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.codec import encode
from antiphon.protocol.content import (
    ContentParam,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    ToolOutputContentParam,
    ToolResult,
    ToolUse,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.items import (
    CompactionParam,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCall,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    ItemReference,
    Message,
    MessageParam,
    MessageRole,
    Reasoning,
    ReasoningParam,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.request import Request
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import FunctionToolParam

WORD = re.compile(r"w\d+w")
CALL_ID = re.compile(r"call_\d+")
HINT = {"cache_control": Raw(b'{"type":"ephemeral"}')}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A request with a history: messages of all roles, calls and results (also inside messages), reasoning, images,
    extensions."""
    make = _Maker(draw)
    first = make.word()
    makers: list[Callable[[], ItemParam]] = [
        make.message,
        make.message,
        make.sent_message,
        make.call,
        make.output,
        make.reasoning,
        make.other,
    ]
    items = [make.one_of(makers)() for _ in range(draw(st.integers(0, 7)))]
    if draw(st.booleans()):
        items.insert(0, MessageParam(role="system", content=make.word()))
    return Request(
        model="m",
        instructions=make.one_of([UNSET, None, "", first, first]),
        input=make.one_of([items, items, items, items, make.word()]),
        tools=make.one_of([UNSET, [FunctionToolParam(name="f", extra=make.extra())]]),
        extra=make.extra(),
    )


def words_by_path(value: Any, path: str = "") -> dict[str, str]:
    """Where every word of a request stands."""
    return {word: where for where, text in _texts(value, path) for word in WORD.findall(text)}


def words(value: Any) -> list[str]:
    """The words of a request in order: the instructions first, as the model reads them."""
    return list(words_by_path(value))


def call_ids(value: Any) -> list[str]:
    """Every mention of a call id, in order."""
    return CALL_ID.findall(encode(value).decode())


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case Unknown():
            yield path, bytes(value.raw).decode()
        case list():
            for at, member in enumerate(value):
                yield from _texts(member, f"{path}[{at}]")
        case dict():
            for name, member in value.items():
                yield from _texts(member, f"{path}.{name}")
        case Request():
            yield from _texts(value.instructions, "instructions")
            yield from _texts(value.input, "input")
        case Shape():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name), f"{path}.{name}")


class _Maker:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._words = 0
        self._calls = 0

    def one_of(self, options: list[Any]) -> Any:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def word(self) -> str:
        self._words += 1
        return f"w{self._words}w"

    def call_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"

    def extra(self) -> Any:
        return self.one_of([UNSET, UNSET, UNSET, dict(HINT), {"note": Raw(b"1")}])

    def parts(self, makers: list[Callable[[], Any]]) -> list[Any]:
        return [self.one_of(makers)() for _ in range(self._draw(st.integers(0, 3)))]

    def message(self) -> MessageParam:
        role: MessageRole = self.one_of(["user", "assistant", "assistant", "system", "developer"])
        content = self.one_of([self.word(), "", self.parts(self._parts_of(role))])
        return MessageParam(role=role, content=content, id=self.one_of([UNSET, None, "msg_1"]), extra=self.extra())

    def sent_message(self) -> Message:
        part = OutputText(text=self.word(), annotations=[])
        return Message(id="msg_0", status=ItemStatus.COMPLETED, role="assistant", content=[part], phase="commentary")

    def _parts_of(self, role: MessageRole) -> list[Callable[[], ContentParam]]:
        if role == "assistant":
            return [self.output_text, lambda: Refusal(refusal=self.word()), self.tool_use, self.input_text]
        if role == "user":
            return [self.input_text, self.image, self.tool_result, self.unknown_part]
        return [self.input_text, self.input_text, self.image]

    def input_text(self) -> InputText:
        return InputText(text=self.word(), extra=self.extra())

    def output_text(self) -> OutputTextParam:
        citation = UrlCitationParam(start_index=0, end_index=1, url="https://example.com", title=self.word())
        return OutputTextParam(text=self.word(), annotations=self.one_of([UNSET, [], [citation]]))

    def image(self) -> InputImageParam:
        url = self.one_of(["data:image/png;base64,AAAA", "https://example.com/i.png"])
        image: InputImageParam = self.one_of(
            [InputImageParam(image_url=url), InputImageParam(file_id="file_1"), InputImageParam()]
        )
        return image

    def tool_use(self) -> ToolUse:
        return ToolUse(id=self.call_id(), name="f", input={"a": self.word()})

    def tool_result(self) -> ToolResult:
        blocks: list[Any] = [
            {"type": "text", "text": self.word()},
            {"type": "text", "text": self.word(), "cache_control": {}},
        ]
        content = self.one_of([UNSET, self.word(), blocks[:1], blocks, {"a": self.word()}])
        return ToolResult(tool_use_id=self.call_id(), content=content, is_error=self.one_of([UNSET, True]))

    def unknown_part(self) -> UnknownContent:
        members = {"type": "acme:part", "said": self.word()} | self.one_of([{}, {"cache_control": {}}])
        return UnknownContent(kind="acme:part", raw=Raw(msgspec.json.encode(members)))

    def call(self) -> ItemParam:
        call_id, namespace = self.call_id(), self.one_of([UNSET, None, "group"])
        arguments = msgspec.json.encode({"a": self.word()}).decode()
        calls: list[ItemParam] = [
            FunctionCallParam(call_id=call_id, name="f", arguments=arguments, namespace=namespace, extra=self.extra()),
            FunctionCallParam(call_id=call_id, name="f", arguments=""),
            FunctionCall(id="fc_1", call_id=call_id, name="f", arguments=arguments, status=ItemStatus.COMPLETED),
            CustomToolCallParam(call_id=call_id, name="c", input=f'{self.word()}\n") -> call', namespace=namespace),
        ]
        item: ItemParam = self.one_of(calls)
        return item

    def output(self) -> ItemParam:
        parts: list[ToolOutputContentParam] = self.parts(
            [self.input_text, self.input_text, self.image, lambda: InputFileParam(filename=self.word())]
        )
        output = self.one_of([self.word(), parts])
        kind = self.one_of([FunctionCallOutputParam, CustomToolCallOutputParam])
        item: ItemParam = kind(
            call_id=self.call_id(), output=output, id=self.one_of([UNSET, "fco_1"]), extra=self.extra()
        )
        return item

    def reasoning(self) -> ItemParam:
        summary = self.parts([lambda: SummaryText(text=self.word())])
        content = self.one_of([UNSET, None, [ReasoningText(text=self.word())]])
        item: ItemParam = self.one_of(
            [
                ReasoningParam(summary=summary, content=content, encrypted_content=self.one_of([UNSET, self.word()])),
                Reasoning(id="rs_1", summary=summary, content=content),
            ]
        )
        return item

    def other(self) -> ItemParam:
        others: list[ItemParam] = [
            ItemReference(id="msg_9"),
            CompactionParam(id="cmp_1", encrypted_content=self.word()),
            WebSearchCall(id="ws_1", status="completed", action={"query": self.word()}),
            UnknownItem(kind="acme:item", raw=Raw(b'{"type":"acme:item","id":"x_1"}')),
        ]
        item: ItemParam = self.one_of(others)
        return item
