"""Random legal lives of a response: Hypothesis drives a `ResponseWriter` through everything it can do.

`lives()` are the events of one, `responses()` what one ends as, `written()` both; `counting_stamps()` are ids and times that count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st
from msgspec import UNSET, Raw

from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.base import RAW_MARK
from antiphon.protocol.content import (
    Annotation,
    InputImage,
    InputText,
    LogProb,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    TopLogProb,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import (
    CodeInterpreterCall,
    Compaction,
    CustomToolCallOutput,
    FunctionCallOutput,
    Item,
    McpListTools,
    Message,
    Reasoning,
    ToolSearchCall,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.request import JsonObjectFormat, ReasoningConfigParam, Request, TextParam
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolParam
from antiphon.protocol.writer import ResponseWriter

Ending = Literal["complete", "incomplete", "fail", "cut"]
ENDINGS: tuple[Ending, ...] = ("complete", "incomplete", "fail")
FIRST_SECOND = 1_700_000_000
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Life(NamedTuple):
    """What the writer said, and the response it says it made."""

    events: list[StreamEvent]
    response: Response


#: The tools that generated responses call.
CALLED_TOOLS: list[ToolParam] = [
    FunctionToolParam(name="look"),
    CustomTool(name="patch"),
    NamespaceTool(name="files", tools=[FunctionToolParam(name="look"), CustomTool(name="patch")]),
]


def counting_stamps() -> Stamps:
    """`msg_1`, `fc_2`, … and one second after the other."""
    ids, seconds = count(1), count(FIRST_SECOND)
    return Stamps(lambda prefix: f"{prefix}_{next(ids)}", lambda: next(seconds))


def lives(endings: Sequence[Ending] = (*ENDINGS, "cut")) -> st.SearchStrategy[list[StreamEvent]]:
    """The events of a life; one that is cut has no terminal event and may leave items open."""
    return written(endings).map(lambda life: life.events)


def responses(endings: Sequence[Ending] = ENDINGS) -> st.SearchStrategy[Response]:
    """What the writer makes of a life that ended."""
    return written(endings).map(lambda life: life.response)


@st.composite
def written(draw: Draw, endings: Sequence[Ending] = (*ENDINGS, "cut")) -> Life:
    """A life, and the response as the writer sees it at the end."""
    collector = EventCollector()
    initial_response = make_initial_response(draw(requests()), id="resp_1", created_at=FIRST_SECOND)
    writer = ResponseWriter(initial_response, collector, counting_stamps())
    ending: Ending = draw(st.sampled_from(endings))
    driver = _Driver(draw, writer, ending)
    driver.begin()
    for _ in range(draw(st.integers(0, 16))):
        driver.step()
    driver.end()
    return Life(collector.events, writer.response)


def requests() -> st.SearchStrategy[Request]:
    """A few requests whose settings a response echoes."""
    tool = FunctionToolParam(name="look", parameters={"type": "object"})
    return st.sampled_from(
        [
            Request(model="m", input="hi"),
            Request(model="m", tools=[tool], tool_choice="required", instructions="be brief\u2028", store=False),
            Request(
                model="m", text=TextParam(format=JsonObjectFormat(), verbosity="low"), metadata={"a": "1"}, top_p=0.5
            ),
            Request(
                model="m",
                reasoning=ReasoningConfigParam(effort="low"),
                max_output_tokens=16,
                previous_response_id="resp_0",
            ),
        ]
    )


# Texts as they come in pieces: nothing, halves of words, separators that are no line endings, joined emoji, NUL, forged
# frames.
PIECES = st.sampled_from(
    [
        "",
        "a",
        "Hel",
        "lo ",
        "wörld",
        "\u2028",
        "\u2029\u0085",
        "👩‍👩‍👧",
        "\x00",
        "\n\ndata: [DONE]\n\n",
        RAW_MARK.decode(),
        "</think>",
        "\\u00e9",
    ]
) | st.text(max_size=6)
LOG_PROBS = st.builds(
    LogProb,
    token=PIECES,
    logprob=st.sampled_from([-0.5, 0, -1e-9]),
    bytes=st.just([1, 255]),
    top_logprobs=st.sampled_from([[], [TopLogProb(token="b", logprob=-2.5, bytes=[98])]]),
)
ANNOTATIONS: st.SearchStrategy[Annotation] = st.sampled_from(
    [
        UrlCitation(start_index=0, end_index=2, url="https://example.org/", title="Example"),
        UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation","file_id":"f_1","index":3}')),
    ]
)
USAGE = st.none() | st.builds(
    Usage,
    input_tokens=st.integers(0, 9),
    output_tokens=st.integers(0, 9),
    total_tokens=st.integers(0, 18),
    input_tokens_details=st.just(InputTokensDetails(cached_tokens=1)),
    output_tokens_details=st.just(OutputTokensDetails(reasoning_tokens=2)),
)
ERRORS: st.SearchStrategy[ApiError] = st.sampled_from(
    [
        UpstreamFault("it went away", code="upstream_disconnected"),
        ApiError("no\u2028", code="overloaded", status=503),
    ]
)
# Wanted ids; the writer does not take one over twice (ITEM-6), also where its own stamps come to it.
IDS = st.none() | st.sampled_from(["up_1", "msg_2", "fc_3"])
NAMESPACES = st.sampled_from([None, "files"])
# What arrives whole: hosted tools, extensions, and items that the writer could not make piece by piece.
WHOLE_ITEMS: tuple[Item, ...] = (
    WebSearchCall(id="ws_1", status="completed", action={"type": "search", "query": "q"}),
    WebSearchCall(status="searching"),
    CodeInterpreterCall(id="ci_1", status="failed", code="1/0"),
    McpListTools(id="mcpl_1", server_label="s", tools=[{"name": "t"}], extra={"acme": Raw(b"[1, 2]")}),
    ToolSearchCall(arguments={"query": "x"}, execution="client", call_id="c_1"),
    Compaction(id="cmp_1", encrypted_content="sealed"),
    FunctionCallOutput(
        id="fco_1",
        call_id="c_1",
        status=ItemStatus.COMPLETED,
        output=[InputText(text="ok"), InputImage(image_url=None, detail="low")],
    ),
    CustomToolCallOutput(id="cto_1", call_id="c_2", status=ItemStatus.IN_PROGRESS, output="done"),
    Message(id="msg_u", status=ItemStatus.COMPLETED, role="user", content=[InputText(text="hi")]),
    Message(
        id="msg_x",
        status=ItemStatus.COMPLETED,
        role="assistant",
        content=[
            OutputText(text="with a field", annotations=[], extra={"acme": Raw(b"null")}),
            UnknownContent(kind="acme:chart", raw=Raw(b'{"type":"acme:chart","points":[1,2]}')),
        ],
    ),
    Reasoning(id="rs_x", summary=[SummaryText(text="thought")], content=None, encrypted_content=None),
    UnknownItem(kind="acme:thing", raw=Raw(b'{"type":"acme:thing","id":"th_1","status":"completed","deep":{"a":[1]}}')),
    UnknownItem(kind="acme:note", raw=Raw(b'{"type":"acme:note","text":"no id, no status"}')),
    UnknownItem(kind="acme:run", raw=Raw(b'{"status":"failed","type":"acme:run","id":"run_1"}')),
)


class _Driver:
    """Takes one legal step after another."""

    def __init__(self, draw: Draw, writer: ResponseWriter, ending: Ending) -> None:
        self._draw = draw
        self._writer = writer
        self._ending = ending
        self._keys = count()
        self._kinds: dict[Hashable, str] = {}
        self._whole: dict[Hashable, Item] = {}

    def begin(self) -> None:
        if self._chance():
            self._writer.queue()
        if self._chance():
            self._writer.start()

    def step(self) -> None:
        moves: list[Callable[[], None]] = [self._open, self._open, self._say_something]
        if self._writer.open_keys:
            moves += [*[self._feed] * 6, self._close]
        self._pick(moves)()

    def end(self) -> None:
        writer, usage = self._writer, self._draw(USAGE)
        match self._ending:
            case "complete":
                writer.complete(usage)
            case "incomplete":
                writer.end_incomplete(self._pick(["max_output_tokens", "content_filter"]), usage)
            case "fail":
                writer.fail(self._draw(ERRORS), usage)
            case "cut":
                pass

    def _pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def _chance(self) -> bool:
        return bool(self._draw(st.booleans()))

    # New items

    def _open(self) -> None:
        key: Hashable = ("key", next(self._keys))
        kind = self._pick(["message", "message", "reasoning", "call", "custom_call", "whole", "extension"])
        writer, id = self._writer, self._draw(IDS)
        self._kinds[key] = kind
        match kind:
            case "message":
                if self._chance():  # its content announces it otherwise
                    writer.open_message(key, id=id, phase=self._pick([UNSET, "commentary", "final_answer"]))
                else:
                    self._feed_message(key)
            case "reasoning":
                if self._chance():
                    writer.open_reasoning(key, id=id)
                else:
                    self._feed_reasoning(key)
            case "call":
                writer.open_call(key, name="look", call_id="c_1", id=id, namespace=self._draw(NAMESPACES))
            case "custom_call":
                writer.open_custom_call(key, name="patch", call_id="c_2", id=id, namespace=self._draw(NAMESPACES))
            case "whole":
                item = self._whole[key] = self._pick(WHOLE_ITEMS)
                writer.open_item(key, item)
            case _:
                writer.open_extension_item(key, "acme:step", {"title": self._draw(PIECES), "status": "mine", "n": 1})

    def _say_something(self) -> None:
        writer = self._writer
        match self._pick(["extension", "carry", "update"]):
            case "extension":
                writer.emit_extension_event("acme:progress", {"percent": 50, "text": self._draw(PIECES)})
            case "carry":
                key = self._pick([None, *writer.open_keys])
                writer.emit_unknown_event("response.web_search_call.searching", {"extra": Raw(b'{"a": 1}')}, key=key)
            case _:
                writer.update_response(service_tier="flex", extra={"acme": Raw(b'{"x":1}')})

    # Open items

    def _feed(self) -> None:
        streamed = [key for key in self._writer.open_keys if self._kinds[key] not in ("whole", "extension")]
        key = self._pick(streamed or self._writer.open_keys)
        match self._kinds[key]:
            case "message":
                self._feed_message(key)
            case "reasoning":
                self._feed_reasoning(key)
            case "call":
                self._writer.add_arguments(key, self._draw(PIECES))
            case "custom_call":
                self._writer.add_custom_input(key, self._draw(PIECES))
            case _:
                self._writer.emit_unknown_event("acme:moved", {"delta": self._draw(PIECES)}, key=key)

    def _feed_message(self, key: Hashable) -> None:
        writer, part, piece = self._writer, self._pick([None, None, 0, "b"]), self._draw(PIECES)
        match self._pick(["text", "text", "text", "refusal", "annotation", "phase", "end_part"]):
            case "text":
                logprobs = self._draw(st.none() | st.lists(LOG_PROBS, max_size=2))
                writer.add_text(key, piece, part_key=part, logprobs=logprobs)
            case "refusal":
                writer.add_refusal(key, piece, part_key=part)
            case "annotation":
                writer.add_annotation(key, self._draw(ANNOTATIONS), part_key=part)
            case "phase" if writer.is_open(key):
                writer.set_phase(key, "final_answer")
            case _ if writer.is_open(key):
                writer.end_part(key, self._pick([None, OutputText, Refusal]), part)
            case _:
                writer.add_text(key, piece)

    def _feed_reasoning(self, key: Hashable) -> None:
        writer, part, piece = self._writer, self._pick([None, None, 0, 1]), self._draw(PIECES)
        match self._pick(["reasoning", "reasoning", "summary", "summary", "encrypted", "end_part"]):
            case "reasoning":
                writer.add_reasoning(key, piece, part_key=part)
            case "summary":
                writer.add_summary(key, piece, part_key=part)
            case "end_part" if writer.is_open(key):
                writer.end_part(key, self._pick([None, ReasoningText, SummaryText]), part)
            case _:
                writer.set_encrypted_content(key, piece)

    def _close(self) -> None:
        writer, key = self._writer, self._pick(self._writer.open_keys)
        if self._kinds[key] not in ("whole", "extension") and self._chance():
            writer.set_extra_fields(key, {"acme": Raw(b'{"kept": [1]}')})
        statuses = [ItemStatus.COMPLETED]
        if self._ending in ("fail", "cut"):  # ITEM-3: elsewhere only the last item may be incomplete
            statuses.append(ItemStatus.INCOMPLETE)
        if self._kinds[key] == "extension":
            statuses.append(ItemStatus.FAILED)
        if key in self._whole and self._chance():
            writer.finish_item(key, self._whole[key])
        else:
            writer.close_item(key, self._pick(statuses))
