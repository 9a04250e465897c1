"""The two tables of VT Code's document, and what lies beyond them: updates, failures, what comes too late."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.common.thread_events import (
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
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WebSearchItem,
)
from antiphon.dialects.common.thread_to_hub import ThreadToHub, ThreadWire
from antiphon.errors import ApiError
from antiphon.protocol.codec import encode
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import ItemDone
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import initial_response
from antiphon.protocol.writer import ResponseWriter

STARTED: list[ThreadEvent] = [ThreadStarted(thread_id="t"), TurnStarted()]


class Told:
    """What events come to; the grammar has judged it."""

    def __init__(self, *events: ThreadEvent, finish: bool = True, error: ApiError | None = None, **wire: Any) -> None:
        collector = EventCollector()
        begun = initial_response(Request(model="m"), id="resp_1", created_at=1)
        thread = ThreadToHub(ResponseWriter(begun, collector, counting_stamps()), ThreadWire(slug="vtcode", **wire))
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


def told_item(item: ThreadItem, **wire: Any) -> Told:
    return Told(*STARTED, ItemStarted(item=item), ItemCompleted(item=item), TurnCompleted(), **wire)


def test_the_events_of_a_turn_are_those_of_the_documents_first_table() -> None:
    """B-5: thread, turn and item events, each as the events the table names; B-2: all of it typed and numbered."""
    told = Told(
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
    assert told.types == [
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
    assert [event["delta"] for event in told.events if event["type"] == "response.output_text.delta"] == ["Hel", "lo"]
    assert told.losses == []


def test_usage_is_the_agents_own_counting() -> None:
    """B-7."""
    usage = AgentUsage(input_tokens=1000, cached_input_tokens=500, output_tokens=200, reasoning_output_tokens=7)
    assert Told(*STARTED, TurnCompleted(usage=usage)).response["usage"] == {
        "input_tokens": 1000,
        "output_tokens": 200,
        "total_tokens": 1200,
        "input_tokens_details": {"cached_tokens": 500},
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
def test_an_item_is_that_of_the_documents_second_table(item: ThreadItem, type: str, members: dict[str, Any]) -> None:
    """B-5, B-3: the nine kinds of the table, and those it does not know as extensions."""
    told = told_item(item)
    (found,) = told.items
    assert found["type"] == type
    assert members.items() <= found.items()
    assert told.losses == []


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
def test_a_switch_leaves_out_what_it_is_for(switch: str, item: ThreadItem) -> None:
    """B-8."""
    assert told_item(item, **{switch: False}).items == []
    assert len(told_item(item).items) == 1


def test_an_output_answers_the_call_of_its_invocation() -> None:
    told = Told(
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
    call, output, again = told.items
    assert (call["call_id"], call["status"], call["vtcode:status"]) == ("call_9", "completed", "failed")
    assert (output["call_id"], output["vtcode:status"], output["vtcode:exit_code"]) == ("call_9", "failed", 1)
    assert again["call_id"] == "call_9"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [({"result": {"n": 1}}, '{"n":1}'), ({"error": "down"}, "down"), ({"result": "r", "error": None}, "r")],
)
def test_what_came_of_a_servers_tool_is_told_as_its_output(outcome: dict[str, Any], text: str) -> None:
    told = Told(TurnStarted(), ItemCompleted(item=McpToolCallItem(id="0", tool_name="f", **outcome)), TurnCompleted())
    assert [item["type"] for item in told.items] == ["function_call", "function_call_output"]
    assert told.items[1]["output"] == text


@pytest.mark.parametrize(
    ("status", "end"), [("failed", "failed"), ("declined", "failed"), ("in_progress", "completed")]
)
def test_a_command_ends_as_it_did(status: str, end: str) -> None:
    """B-1, ITEM-2: an extension item may fail; none is left in progress."""
    assert told_item(CommandExecutionItem(id="i", command="ls", status=status)).items[0]["status"] == end


def test_text_that_was_changed_is_told_anew_in_a_part_of_its_own() -> None:
    told = Told(
        TurnStarted(),
        ItemStarted(item=AgentMessageItem(id="0", text="I think")),
        ItemCompleted(item=AgentMessageItem(id="0", text="No.")),
        TurnCompleted(),
    )
    assert [part["text"] for part in told.items[0]["content"]] == ["I think", "No."]
    assert told.losses == ["item 0: a change of the text (the earlier text was delivered; the new text follows it)"]


def test_arguments_that_were_changed_are_a_loss() -> None:
    told = Told(
        TurnStarted(),
        ItemStarted(item=ToolInvocationItem(id="0", tool_name="f", arguments={"a": 1})),
        ItemCompleted(item=ToolInvocationItem(id="0", tool_name="f", arguments={"a": 2})),
        TurnCompleted(),
    )
    assert told.items[0]["arguments"] == '{"a":1}'
    assert told.losses == ["item 0: changed arguments (the first arguments were already delivered)"]


def test_what_comes_after_an_end_is_a_loss() -> None:
    """F-4, ITEM-4, STR-7."""
    done = AgentMessageItem(id="0", text="Hi")
    told = Told(
        TurnStarted(), ItemCompleted(item=done), ItemUpdated(item=done), TurnCompleted(), ThreadCompleted(), TurnStarted(),
        OtherEvent(kind="x", members={}),
    )  # fmt: skip
    assert told.losses == [
        "item 0: an update (the item had ended)",
        "turn.started: the event (the turn had ended)",
        "x: the event (the turn had ended)",
    ]


def test_a_turn_that_failed_fails_the_response_in_the_agents_words() -> None:
    """B-5, B-6: and what was open is closed."""
    told = Told(
        TurnStarted(),
        ItemStarted(item=AgentMessageItem(id="0", text="Well")),
        TurnFailed(message="the model is gone", usage=AgentUsage(input_tokens=1)),
    )
    assert told.types[-2:] == ["error", "response.failed"]
    assert told.events[-2]["error"] == {
        "type": "model_error", "code": "agent_failed", "message": "the model is gone", "param": None,
    }  # fmt: skip
    assert told.response["usage"]["input_tokens"] == 1
    assert told.items[0]["status"] == "incomplete"
    assert told.error is not None


def test_an_error_that_the_turn_survives_is_an_event_of_the_agents_own() -> None:
    told = Told(TurnStarted(), ThreadError(message="trying again"), TurnCompleted())
    assert told.types == ["response.created", "response.in_progress", "vtcode:error", "response.completed"]
    assert told.events[2]["message"] == "trying again"
    assert "vtcode:error" not in Told(TurnStarted(), ThreadError(), TurnCompleted(), include_extensions=False).types


def test_events_that_nobody_knows_are_carried_if_they_can_be_named() -> None:
    """ITEM-5, B-3."""
    told = Told(
        TurnStarted(), OtherEvent(kind="plan.delta", members={"delta": "x"}), OtherEvent(kind="a b", members={})
    )
    assert told.events[2]["type"] == "vtcode:plan.delta"
    assert told.losses == ["'a b': the event or item (an extension cannot have this name)"]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "the agent stopped before the end of its turn"),
        ([ThreadError(message="oh")], "the agent stopped before the end of its turn; last error: oh"),
        ([ThreadCompleted(subtype="cancelled")], "the agent stopped before the end of its turn"),
    ],
)
def test_a_turn_without_an_end_has_failed(events: list[ThreadEvent], said: str) -> None:
    assert Told(TurnStarted(), *events).response["error"] == {"code": "upstream_disconnected", "message": said}


def test_a_thread_that_ends_well_without_a_word_about_its_turn_is_complete() -> None:
    told = Told(TurnStarted(), ThreadCompleted(subtype="success", usage=AgentUsage(output_tokens=3)))
    assert told.response["status"] == "completed"
    assert told.response["usage"]["output_tokens"] == 3


def test_whoever_reads_the_agent_may_say_what_went_wrong() -> None:
    assert Told(error=ApiError("cut off", code="cancelled")).response["error"] == {
        "code": "cancelled",
        "message": "cut off",
    }
