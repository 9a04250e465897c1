"""A conversation in which no message of the user has content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import InvalidValue
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.request import Request

EMPTY = MessageParam(role="user", content="")


@pytest.mark.parametrize("server", SERVER_DIALECTS)
@pytest.mark.parametrize("instructions", ["Be brief.", ""])
def test_empty_user_message_is_sent_in_a_form_that_the_server_accepts(server: Any, instructions: str) -> None:
    """F-4: `chat` and `responses` servers accept an empty text. Others get another text, which is a loss."""
    dialect = SERVER_DIALECTS[server]
    request = Request(model="m", instructions=instructions, input=[EMPTY])
    body, losses = dialect.request_from_hub(request, dialect.wire_type())
    accepts_empty_text = server in ("chat", "responses")
    assert ("Continue." in json.dumps(json.loads(body))) is not accepts_empty_text
    assert ("input" in [loss.path for loss in losses]) is not accepts_empty_text


@pytest.mark.parametrize("server", ["messages", "gemini", "ollama"])
@pytest.mark.parametrize("items", [[], [MessageParam(role="assistant", content="")]])
def test_conversation_without_a_user_message_is_refused(server: Any, items: list[ItemParam]) -> None:
    dialect = SERVER_DIALECTS[server]
    with pytest.raises(InvalidValue, match="input: no content to send"):
        dialect.request_from_hub(Request(model="m", input=items), dialect.wire_type())


ANSWERED: list[ItemParam] = [MessageParam(role="user", content="Hi"), MessageParam(role="assistant", content="Hello.")]


@pytest.mark.parametrize("server", ["messages", "gemini", "ollama"])
def test_empty_user_message_at_the_end_does_not_let_the_model_continue_itself(server: Any) -> None:
    """Without it the conversation would end with the model's message, which servers continue or refuse."""
    dialect = SERVER_DIALECTS[server]
    body, losses = dialect.request_from_hub(Request(model="m", input=[*ANSWERED, EMPTY]), dialect.wire_type())
    sent = json.loads(body)
    last = (sent.get("messages") or sent.get("contents"))[-1]
    assert (last["role"], "Continue." in json.dumps(last)) == ("user", True)
    assert "input" in [loss.path for loss in losses]


@pytest.mark.parametrize("server", ["messages", "ollama"])
def test_model_message_at_the_end_stays_the_last(server: Any) -> None:
    dialect = SERVER_DIALECTS[server]
    body, _ = dialect.request_from_hub(Request(model="m", input=ANSWERED), dialect.wire_type())
    assert json.loads(body)["messages"][-1]["role"] == "assistant"
