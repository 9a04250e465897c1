"""`@agent` and `Turn`: all calls, refused calls, and the ends of a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.generate.events import counting_stamps

from antiphon.errors import ApiError, InvalidTransition, InvalidValue
from antiphon.producer import Agent, EventCollector, Turn, agent
from antiphon.protocol.codec import encode
from antiphon.protocol.content import InputText, UrlCitation
from antiphon.protocol.events import ItemDone, OutputTextDelta
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCallParam, ItemParam, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus

pytestmark = pytest.mark.without_coverage
Run = Callable[[Turn], Awaitable[None]]


class TurnResult:
    """The output of an agent, checked by the grammar."""

    def __init__(self, run: Run, input: str | list[ItemParam] = "Hi", total: float | None = None) -> None:
        collector = EventCollector()
        asked = Request(model="m", input=input)
        self.response: Response = asyncio.run(
            agent(model="m")(run).answer(asked, collector, stamps=counting_stamps(), total=total)
        )
        self.events = collector.events
        assert find_violations(self.events) == []
        self.items: list[dict[str, Any]] = [
            msgspec.json.decode(encode(event.item)) for event in self.events if isinstance(event, ItemDone)
        ]


def test_agent_writes_reasoning_extension_message_and_usage() -> None:
    """B-2, B-3, B-7: reasoning, an extension, a message, usage."""

    async def run(turn: Turn) -> None:
        async with turn.reasoning() as thought:
            await thought.write("Looking at the files…")
        await turn.extension("acme:file_change", {"path": "a.py", "kind": "update"})
        async with turn.message() as out:
            await out.write("Do")
            await out.write("ne.")
        turn.usage(input_tokens=1000, cached_tokens=500, output_tokens=200)

    answer = TurnResult(run)
    thought, change, message = answer.items
    assert thought["content"] == [{"type": "reasoning_text", "text": "Looking at the files…"}]
    assert (change["type"], change["path"], change["status"]) == ("acme:file_change", "a.py", "completed")
    assert message["content"][0]["text"] == "Done."
    assert [event.delta for event in answer.events if isinstance(event, OutputTextDelta)] == ["Do", "ne."]
    assert answer.response.status == "completed"
    assert answer.response.usage is not None
    assert answer.response.usage.total_tokens == 1200
    assert answer.response.usage.input_tokens_details.cached_tokens == 500


def test_agent_writes_summaries_citations_calls_and_extensions() -> None:
    async def run(turn: Turn) -> None:
        async with turn.reasoning() as thought:
            await thought.summarise("In short.")
        async with turn.message(phase="commentary") as out:
            await out.write("See there.")
            await out.cite(UrlCitation(start_index=0, end_index=3, url="https://a.example", title="A"))
            await out.refuse("No.")
        async with turn.function_call("look", call_id="call_7") as call:
            await call.write('{"a":')
            await call.write("1}")
        made = await turn.call("find", {"b": 2})
        await turn.output(made, "found")
        await turn.event("acme:progress", {"done": 1})
        await turn.extension("acme:command", {"command": "ls"}, status=ItemStatus.FAILED)

    answer = TurnResult(run)
    thought, message, look, find, output, command = answer.items
    assert thought["summary"] == [{"type": "summary_text", "text": "In short."}]
    assert message["phase"] == "commentary"
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]
    assert message["content"][0]["annotations"][0]["title"] == "A"
    assert (look["call_id"], look["arguments"]) == ("call_7", '{"a":1}')
    assert (find["name"], find["arguments"]) == ("find", '{"b":2}')
    assert (output["call_id"], output["output"]) == (find["call_id"], "found")
    assert command["status"] == "failed"
    assert "acme:progress" in [getattr(event, "kind", "") for event in answer.events]


@pytest.mark.parametrize(
    ("input", "text", "count"),
    [
        ("Hi", "Hi", 1),
        ([], "", 0),
        (
            [
                MessageParam(role="user", content="First."),
                MessageParam(role="assistant", content="Yes."),
                MessageParam(role="user", content=[InputText(text="Se"), InputText(text="cond.")]),
                FunctionCallParam(call_id="c", name="f", arguments="{}"),
            ],
            "Second.",
            4,
        ),
    ],
)
def test_turn_has_the_text_and_items_of_the_request(input: str | list[ItemParam], text: str, count: int) -> None:
    async def run(turn: Turn) -> None:
        assert (turn.text, len(turn.input), turn.request.model) == (text, count, "m")
        assert turn.response.status == "in_progress"

    assert TurnResult(run, input).response.status == "completed"


async def _write_after_its_end(turn: Turn) -> None:
    async with turn.message() as out:
        await out.write("Hi")
    await out.write("again")


async def _bad_extension(turn: Turn) -> None:
    await turn.extension("file_change", {})


async def _bad_event(turn: Turn) -> None:
    await turn.event("progress", {})


async def _after_the_end(turn: Turn) -> None:
    turn.incomplete()
    async with turn.message():
        pass


async def _usage_after_the_end(turn: Turn) -> None:
    turn.incomplete()
    turn.usage(input_tokens=1, output_tokens=1)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (_write_after_its_end, r"the item 'message 1' was announced before \(ITEM-4\)"),
        (_bad_extension, r"invalid extension type 'file_change': expected slug:name, such as acme:progress \(B-3\)"),
        (_bad_event, r"expected slug:name"),
        (_after_the_end, r"the response is incomplete: nothing can follow \(STR-7\)"),
        (_usage_after_the_end, r"its usage cannot change any more \(STR-7\)"),
    ],
)
def test_invalid_call_raises_with_the_message_of_the_writer(run: Run, expected: str) -> None:
    """B-1, B-3: raised in the agent's code, so that its traceback shows the line."""
    caught: list[InvalidTransition] = []

    async def careful(turn: Turn) -> None:
        with pytest.raises(InvalidTransition, match=expected) as raised:
            await run(turn)
        caught.append(raised.value)

    TurnResult(careful)
    assert len(caught) == 1


def test_agent_can_end_as_incomplete() -> None:
    """B-4: the open item is incomplete."""

    async def run(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write("Too lo")
            turn.incomplete("max_output_tokens")

    answer = TurnResult(run)
    assert answer.items[0]["status"] == "incomplete"
    assert answer.response.incomplete_details is not None
    assert answer.response.incomplete_details.reason == "max_output_tokens"


def test_client_fault_of_an_agent_fails_the_response_with_its_message() -> None:
    """B-6."""

    async def run(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write("I")
            raise InvalidValue("input: got no words", param="input")

    answer = TurnResult(run)
    assert answer.response.status == "failed"
    assert answer.response.error is not None
    assert (answer.response.error.code, answer.response.error.message) == ("invalid_value", "input: got no words")
    assert answer.items[0]["status"] == "incomplete"


def test_other_errors_of_an_agent_are_logged_but_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def run(turn: Turn) -> None:
        del turn
        raise RuntimeError("the password is 1234")

    with caplog.at_level(logging.ERROR, logger="antiphon.agent"):
        answer = TurnResult(run)
    assert answer.response.error is not None
    assert (answer.response.error.code, answer.response.error.message) == (
        "agent_failed",
        "the agent failed; see the log of the gateway",
    )
    assert "the password is 1234" in caplog.text


def test_agent_failure_after_the_end_changes_nothing() -> None:
    async def run(turn: Turn) -> None:
        turn.incomplete()
        raise ApiError("too late")

    assert TurnResult(run).response.status == "incomplete"


def test_agent_timeout_fails_the_response() -> None:
    async def run(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write("Wait")
            await asyncio.Event().wait()

    answer = TurnResult(run, total=0.01)
    assert answer.response.error is not None
    assert answer.response.error.code == "upstream_timeout"


def test_timeout_error_of_the_agent_itself_is_agent_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def run(turn: Turn) -> None:
        del turn
        raise TimeoutError

    assert TurnResult(run, total=60).response.error.code == "agent_failed"  # type: ignore[union-attr]
    assert "TimeoutError" in caplog.text


def test_unnamed_model_is_the_name_of_the_agent() -> None:
    async def run(turn: Turn) -> None:
        await turn.wait_for_reader()

    response = asyncio.run(Agent(run, "mine").answer(Request(input="Hi"), EventCollector()))
    assert response.model == "mine"
    assert response.id.startswith("resp_")
