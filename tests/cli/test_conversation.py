"""The conversation of `antiphon chat`: the next request, and the transcript."""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.cli.conversation import Conversation
from antiphon.protocol.content import InputText, OutputText
from antiphon.protocol.items import Message, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ItemStatus, ResponseStatus

HELLO = MessageParam(role="user", content="Hello")


def _response(text: str, *, store: bool) -> Response:
    request = Request(model="mock-1", input="x", store=store)
    message = Message(
        id="msg_1", role="assistant", status=ItemStatus.COMPLETED, content=[OutputText(text=text, annotations=[])]
    )
    response = make_initial_response(request, id="resp_1", created_at=1)
    return replace(response, status=ResponseStatus.COMPLETED, output=[message])


def test_stored_answer_is_continued_by_its_id() -> None:
    conversation = Conversation("mock-1", "Be brief.")
    assert conversation.request_fields("Hello") == ([HELLO], {"model": "mock-1", "instructions": "Be brief."})
    conversation.add_answer("Hello", _response("Hi", store=True))
    items, fields = conversation.request_fields("Hello")
    assert items == [HELLO]
    assert fields == {"model": "mock-1", "instructions": "Be brief.", "previous_response_id": "resp_1"}


def test_unstored_answer_is_sent_again() -> None:
    conversation = Conversation("mock-1")
    answer = _response("Hi", store=False)
    conversation.add_answer("Hello", answer)
    items, fields = conversation.request_fields("Bye")
    assert items == [HELLO, *answer.output, MessageParam(role="user", content="Bye")]
    assert fields == {"model": "mock-1"}


def test_interrupted_answer_is_sent_with_the_next_question() -> None:
    conversation = Conversation("mock-1", previous_id="resp_0")
    conversation.add_interrupted_answer("Hello", "Once upon")
    conversation.add_interrupted_answer("Bye", "")
    items, fields = conversation.request_fields("Go on")
    assert items == [
        HELLO,
        MessageParam(role="assistant", content="Once upon"),
        MessageParam(role="user", content="Bye"),
        MessageParam(role="user", content="Go on"),
    ]
    assert fields == {"model": "mock-1", "previous_response_id": "resp_0"}


def test_attachment_belongs_to_one_question() -> None:
    conversation = Conversation("mock-1")
    conversation.attach(InputText(text="a.txt:\n\nx"))
    assert conversation.attachments == 1
    (message,) = conversation.request_fields("What is it?")[0]
    assert message == MessageParam(role="user", content=[InputText(text="What is it?"), InputText(text="a.txt:\n\nx")])
    conversation.add_answer("What is it?", _response("x", store=True))
    assert conversation.attachments == 0


def test_restarted_conversation_keeps_model_and_system_prompt() -> None:
    conversation = Conversation("mock-1", "Be brief.", "resp_0")
    conversation.add_interrupted_answer("Hello", "Hi")
    conversation.restart()
    assert conversation.request_fields("Hello") == ([HELLO], {"model": "mock-1", "instructions": "Be brief."})
    assert conversation.exchanges == []


def test_transcript_is_markdown() -> None:
    conversation = Conversation("mock-1", "Be brief.")
    conversation.add_answer("Hello", _response("Hi", store=True))
    conversation.add_interrupted_answer("A story", "Once")
    assert conversation.transcript() == (
        "# Conversation with mock-1\n\n## System\n\nBe brief.\n\n## User\n\nHello\n\n## Assistant\n\nHi\n\n"
        "## User\n\nA story\n\n## Assistant\n\nOnce\n\n[stopped]\n"
    )
    assert Conversation("mock-1").transcript() == "# Conversation with mock-1\n"
