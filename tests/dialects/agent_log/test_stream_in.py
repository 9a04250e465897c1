"""Thread events and lines of an agent as hub events: the two tables of VT Code's document, updates, failures, late
events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.agent_log import EventsToHub
from antiphon.dialects.agent_log.stream_in import ThreadToHub
from antiphon.dialects.agent_log.wire import (
    AgentMessageItem,
    AgentUsage,
    CommandExecutionItem,
    ErrorItem,
    FileChangeItem,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    ReasoningItem,
    ThreadCompleted,
    ThreadError,
    ThreadEvent,
    ThreadItem,
    ThreadStarted,
    ThreadWire,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WebSearchItem,
)
from antiphon.errors import ApiError
from antiphon.protocol.codec import encode
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import ItemDone
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.open_items import type_of
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.writer import ResponseWriter

STARTED: list[ThreadEvent] = [ThreadStarted(thread_id="t"), TurnStarted()]


class TurnResult:
    """The result of events, checked by the grammar."""

    def __init__(self, *events: ThreadEvent, finish: bool = True, error: ApiError | None = None, **wire: Any) -> None:
        collector = EventCollector()
        initial_response = make_initial_response(Request(model="m"), id="resp_1", created_at=1)
        thread = ThreadToHub(
            ResponseWriter(initial_response, collector, counting_stamps()), ThreadWire(slug="vtcode", **wire)
        )
        for event in events:
            thread.feed(event)
        if finish:
            thread.finish(error)
        assert find_violations(collector.events) == []
        self.events = [msgspec.json.decode(encode(event)) for event in collector.events]
        self.types = [event["type"] for event in self.events]
        self.items = [
            msgspec.json.decode(encode(event.item)) for event in collector.events if isinstance(event, ItemDone)
        ]
        self.losses = [str(loss) for loss in thread.losses]
        self.error = thread.error

    @property
    def response(self) -> dict[str, Any]:
        response: dict[str, Any] = self.events[-1]["response"]
        return response


def translate_item(item: ThreadItem, **wire: Any) -> TurnResult:
    return TurnResult(*STARTED, ItemStarted(item=item), ItemCompleted(item=item), TurnCompleted(), **wire)


def test_turn_gives_the_events_of_the_first_table() -> None:
    """B-5: thread, turn and item events, each as the events that the table names; B-2: all typed and numbered."""
    answer = TurnResult(
        ThreadStarted(thread_id="t"),
        TurnStarted(),
        ItemStarted(item=ReasoningItem(id="0", text="Hm")),
        ItemUpdated(item=ReasoningItem(id="0", text="Hmm")),
        ItemCompleted(item=ReasoningItem(id="0", text="Hmm")),
        ItemStarted(item=AgentMessageItem(id="1")),
        ItemUpdated(item=AgentMessageItem(id="1", text="Hel")),
        ItemCompleted(item=AgentMessageItem(id="1", text="Hello")),
        TurnCompleted(
            usage=AgentUsage(input_tokens=1000, cached_input_tokens=500, output_tokens=200, reasoning_output_tokens=7)
        ),
    )
    assert answer.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning.delta",
        "response.reasoning.delta",
        "response.reasoning.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["delta"] for event in answer.events if event["type"] == "response.output_text.delta"] == ["Hel", "lo"]
    assert answer.losses == []


def test_usage_is_taken_from_the_agent() -> None:
    """B-7."""
    usage = AgentUsage(input_tokens=1000, cached_input_tokens=500, output_tokens=200, reasoning_output_tokens=7)
    assert TurnResult(*STARTED, TurnCompleted(usage=usage)).response["usage"] == {
        "input_tokens": 1000,
        "output_tokens": 200,
        "total_tokens": 1200,
        "input_tokens_details": {"cached_tokens": 500, "cache_write_tokens": None},
        "output_tokens_details": {"reasoning_tokens": 7},
    }


@pytest.mark.parametrize(
    ("item", "type", "members"),
    [
        (AgentMessageItem(id="i", text="Hi"), "message", {"role": "assistant"}),
        (ReasoningItem(id="i", text="Hm", extra_members={"stage": "plan"}), "reasoning", {"vtcode:stage": "plan"}),
        (
            ToolInvocationItem(id="i", tool_name="read", arguments={"path": "a"}),
            "function_call",
            {"call_id": "i", "name": "read", "arguments": '{"path":"a"}'},
        ),
        (
            ToolOutputItem(id="i", call_id="c", output="text"),
            "function_call_output",
            {"call_id": "c", "output": "text"},
        ),
        (
            CommandExecutionItem(id="i", command="ls", exit_code=0),
            "vtcode:command_execution",
            {"command": "ls", "status": "completed"},
        ),
        (McpToolCallItem(id="i", tool_name="find"), "function_call", {"name": "find", "arguments": "{}"}),
        (FileChangeItem(id="i", changes=[{"path": "a", "kind": "add"}]), "vtcode:file_change", {"status": "completed"}),
        (WebSearchItem(id="i", query="q"), "vtcode:web_search", {"query": "q", "status": "completed"}),
        (ErrorItem(id="i", message="oh"), "vtcode:error", {"message": "oh"}),
        (OtherItem(id="i", kind="todo_list", extra_members={"items": []}), "vtcode:todo_list", {"items": []}),
        (OtherItem(id="i", kind="acme:note"), "acme:note", {}),
    ],
)
def test_item_is_translated_by_the_second_table(item: ThreadItem, type: str, members: dict[str, Any]) -> None:
    """B-5, B-3: the nine kinds of the table, and unknown kinds as extensions."""
    result = translate_item(item)
    (translated,) = result.items
    assert translated["type"] == type
    assert members.items() <= translated.items()
    assert result.losses == []


@pytest.mark.parametrize(
    ("switch", "item"),
    [
        ("include_reasoning", ReasoningItem(id="i", text="Hm")),
        ("map_tool_calls", ToolInvocationItem(id="i", tool_name="read")),
        ("map_tool_calls", ToolOutputItem(id="i", call_id="c")),
        ("map_tool_calls", McpToolCallItem(id="i", tool_name="find")),
        ("include_extensions", WebSearchItem(id="i", query="q")),
    ],
)
def test_switch_omits_its_kind_of_items(switch: str, item: ThreadItem) -> None:
    """B-8."""
    assert translate_item(item, **{switch: False}).items == []
    assert len(translate_item(item).items) == 1


def test_tool_output_has_the_call_id_of_its_invocation() -> None:
    answer = TurnResult(
        TurnStarted(),
        ItemStarted(item=ToolInvocationItem(id="0", tool_name="read", tool_call_id="call_9")),
        ItemCompleted(
            item=ToolInvocationItem(id="0", tool_name="read", tool_call_id="call_9", arguments={}, status="failed")
        ),
        ItemStarted(item=ToolOutputItem(id="1", call_id="0", status="in_progress")),
        ItemCompleted(
            item=ToolOutputItem(id="1", call_id="0", output="no", status="failed", extra_members={"exit_code": 1})
        ),
        ItemCompleted(item=ToolOutputItem(id="2", call_id="x", tool_call_id="call_9", output="again")),
        TurnCompleted(),
    )
    call, output, again = answer.items
    assert (call["call_id"], call["status"], call["vtcode:status"]) == ("call_9", "completed", "failed")
    assert (output["call_id"], output["vtcode:status"], output["vtcode:exit_code"]) == ("call_9", "failed", 1)
    assert again["call_id"] == "call_9"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [({"result": {"n": 1}}, '{"n":1}'), ({"error": "down"}, "down"), ({"result": "r", "error": None}, "r")],
)
def test_result_of_an_mcp_tool_becomes_its_output(outcome: dict[str, Any], text: str) -> None:
    answer = TurnResult(
        TurnStarted(), ItemCompleted(item=McpToolCallItem(id="0", tool_name="f", **outcome)), TurnCompleted()
    )
    assert [item["type"] for item in answer.items] == ["function_call", "function_call_output"]
    assert answer.items[1]["output"] == text


@pytest.mark.parametrize(
    ("status", "end"), [("failed", "failed"), ("declined", "failed"), ("in_progress", "completed")]
)
def test_command_keeps_its_final_status(status: str, end: str) -> None:
    """B-1, ITEM-2: an extension item may fail; none stays in progress."""
    assert translate_item(CommandExecutionItem(id="i", command="ls", status=status)).items[0]["status"] == end


def test_changed_text_becomes_a_new_part() -> None:
    answer = TurnResult(
        TurnStarted(),
        ItemStarted(item=AgentMessageItem(id="0", text="I think")),
        ItemCompleted(item=AgentMessageItem(id="0", text="No.")),
        TurnCompleted(),
    )
    assert [part["text"] for part in answer.items[0]["content"]] == ["I think", "No."]
    assert answer.losses == ["item 0: a change of the text (the earlier text was delivered; the new text follows it)"]


def test_arguments_that_were_changed_are_a_loss() -> None:
    answer = TurnResult(
        TurnStarted(),
        ItemStarted(item=ToolInvocationItem(id="0", tool_name="f", arguments={"a": 1})),
        ItemCompleted(item=ToolInvocationItem(id="0", tool_name="f", arguments={"a": 2})),
        TurnCompleted(),
    )
    assert answer.items[0]["arguments"] == '{"a":1}'
    assert answer.losses == ["item 0: changed arguments (the first arguments were already delivered)"]


def test_events_after_an_end_are_losses() -> None:
    """F-4, ITEM-4, STR-7."""
    done = AgentMessageItem(id="0", text="Hi")
    answer = TurnResult(
        TurnStarted(), ItemCompleted(item=done), ItemUpdated(item=done), TurnCompleted(), ThreadCompleted(), TurnStarted(),
        OtherEvent(kind="x", members={}),
    )  # fmt: skip
    assert answer.losses == [
        "item 0: an update (the item had ended)",
        "turn.started: the event (the turn had ended)",
        "x: the event (the turn had ended)",
    ]


def test_failed_turn_fails_the_response_with_its_message() -> None:
    """B-5, B-6: and open items are closed."""
    answer = TurnResult(
        TurnStarted(),
        ItemStarted(item=AgentMessageItem(id="0", text="Well")),
        TurnFailed(message="the model is gone", usage=AgentUsage(input_tokens=1)),
    )
    assert answer.types[-2:] == ["error", "response.failed"]
    assert answer.events[-2]["error"] == {
        "type": "model_error", "code": "agent_failed", "message": "the model is gone", "param": None,
    }  # fmt: skip
    assert answer.response["usage"]["input_tokens"] == 1
    assert answer.items[0]["status"] == "incomplete"
    assert answer.error is not None


def test_non_fatal_error_becomes_an_extension_event() -> None:
    answer = TurnResult(TurnStarted(), ThreadError(message="trying again"), TurnCompleted())
    assert answer.types == ["response.created", "response.in_progress", "vtcode:error", "response.completed"]
    assert answer.events[2]["message"] == "trying again"
    assert (
        "vtcode:error" not in TurnResult(TurnStarted(), ThreadError(), TurnCompleted(), include_extensions=False).types
    )


def test_unknown_events_become_extension_events_if_nameable() -> None:
    """ITEM-5, B-3."""
    answer = TurnResult(
        TurnStarted(), OtherEvent(kind="plan.delta", members={"delta": "x"}), OtherEvent(kind="a b", members={})
    )
    assert answer.events[2]["type"] == "vtcode:plan.delta"
    assert answer.losses == ["'a b': the event or item (an extension cannot have this name)"]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "the agent stopped before the end of its turn"),
        ([ThreadError(message="oh")], "the agent stopped before the end of its turn; last error: oh"),
        ([ThreadCompleted(subtype="cancelled")], "the agent stopped before the end of its turn"),
    ],
)
def test_turn_without_an_end_fails(events: list[ThreadEvent], expected: str) -> None:
    assert TurnResult(TurnStarted(), *events).response["error"] == {
        "code": "upstream_disconnected",
        "message": expected,
    }


def test_thread_completed_completes_a_turn_without_its_own_end() -> None:
    answer = TurnResult(TurnStarted(), ThreadCompleted(subtype="success", usage=AgentUsage(output_tokens=3)))
    assert answer.response["status"] == "completed"
    assert answer.response["usage"]["output_tokens"] == 3


def test_error_passed_to_finish_fails_the_response() -> None:
    assert TurnResult(error=ApiError("cut off", code="cancelled")).response["error"] == {
        "code": "cancelled",
        "message": "cut off",
    }


LINES = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "turn.started"},
    {"type": "item.started", "item": {"id": "0", "type": "reasoning", "text": "Let me", "stage": "analysis"}},
    {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "Let me see.", "stage": "analysis"}},
    {"type": "item.completed", "item": {"id": "1", "type": "tool_invocation", "tool_name": "read_file",
     "arguments": {"path": "a.rs"}, "tool_call_id": "call_1", "status": "completed"}},
    {"type": "item.completed", "item": {"id": "2", "type": "tool_output", "call_id": "1", "output": "fn",
     "status": "completed"}},
    {"type": "item.completed", "item": {"id": "3", "type": "file_change", "status": "completed",
     "changes": [{"path": "a.rs", "kind": "update"}]}},
    {"type": "item.completed", "item": {"id": "4", "type": "harness", "event": "verification_passed"}},
    {"type": "item.completed", "item": {"id": "5", "type": "agent_message", "text": "Done."}},
    {"type": "turn.completed",
     "usage": {"input_tokens": 10, "cached_input_tokens": 5, "cache_creation_tokens": 0, "output_tokens": 2}},
    {"type": "thread.completed", "thread_id": "t", "session_id": "s", "subtype": "success", "outcome_code": "ok",
     "usage": {"input_tokens": 10, "cached_input_tokens": 5, "cache_creation_tokens": 0, "output_tokens": 2},
     "num_turns": 1},
]  # fmt: skip


def response_of_lines(lines: list[bytes], slug: str = "vtcode") -> Response:
    request = Request(model="m")
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    to_hub = EventsToHub(request, initial_response, counting_stamps(), ThreadWire(slug=slug))
    events = [event for line in lines for event in to_hub.feed(line)] + to_hub.finish()
    assert find_violations(events) == []
    assert list(to_hub.losses) == []
    return fold_events(events)


def test_turn_is_translated_with_and_without_envelope() -> None:
    """B-3, B-5: bare events, and events in the envelope with the version of the schema."""
    plain = response_of_lines([msgspec.json.encode(line) for line in LINES])
    wrapped = response_of_lines([msgspec.json.encode({"schema_version": "0.8.0", "event": line}) for line in LINES])
    assert plain == wrapped
    assert [type_of(item) for item in plain.output] == [
        "reasoning", "function_call", "function_call_output", "vtcode:file_change", "vtcode:harness", "message",
    ]  # fmt: skip
    assert plain.status == "completed"


def test_slug_is_the_prefix_of_extension_items() -> None:
    response = response_of_lines([msgspec.json.encode(line) for line in LINES], "acme")
    assert "acme:file_change" in map(type_of, response.output)
