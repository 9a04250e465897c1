"""`dialects/chat/stream_in`: the fast path for a text response gives the same result as the full path, or none."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generate.chat_bodies import wires

from antiphon.dialects.chat.stream_in import response_by_events, text_response_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import ApiError
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps

REQUEST = Request(model="m", input="Hi", service_tier="default")


def stamps() -> Stamps:
    numbers = itertools.count()
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)


def goes_the_short_way(body: bytes, wire: ChatWire = ChatWire()) -> bool:  # noqa: B008
    """Whether it is used; if so, both paths give the same result."""
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    short = text_response_to_hub(body, initial_response, stamps(), wire)
    if short is None:
        return False
    try:
        response, losses = response_by_events(body, REQUEST, initial_response, stamps(), wire)
    except ApiError as error:  # pragma: no cover - only if the two do not agree
        pytest.fail(f"the long way refuses it: {error}")
    assert short == response
    assert len(losses) == 0
    return True


def completion(message: Any = None, **more: Any) -> bytes:
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
    return msgspec.json.encode(
        {"id": "x", "object": "chat.completion", **{"choices": [{**choice, **more.pop("choice", {})}], **more}}
    )


def message_completion(**members: Any) -> bytes:
    return completion({"role": "assistant", "content": "Hello.", **members})


@pytest.mark.parametrize(
    "body",
    [
        completion(),
        completion(usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
        completion(choice={"usage": {"prompt_tokens": 3}}),
        completion(service_tier="flex"),
        completion(choice={"index": None, "logprobs": None}),
        message_completion(refusal=None, annotations=[], tool_calls=None, audio=None),
        message_completion(content=" \nHello. "),
    ],
)
def test_fast_path_accepts_plain_text_answers(body: bytes) -> None:
    assert goes_the_short_way(body)


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"[" * 100_000,
        b"{}",
        completion(error={"message": "no"}),
        completion(choices=[]),
        completion(choices=[None]),
        completion(choices=[{}, {}]),
        completion(choice={"index": 1}),
        completion(choice={"delta": {"content": "x"}}),
        completion(choice={"finish_reason": "length"}),
        completion(choice={"logprobs": {"content": []}}),
        completion(choice={"message": None}),
        message_completion(content=None),
        message_completion(content=""),
        message_completion(content=" \n"),
        message_completion(content="<think>Hm.</think>Hello."),
        message_completion(content=[{"type": "text", "text": "Hello."}]),
        message_completion(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
        message_completion(function_call={"name": "f", "arguments": "{}"}),
        message_completion(refusal="No."),
        message_completion(annotations=[{"type": "url_citation"}]),
        message_completion(audio={"id": "a"}),
        message_completion(images=[{}]),
        message_completion(reasoning_content="Hm."),
        message_completion(reasoning="Hm."),
        message_completion(reasoning_details=[{}]),
    ],
)
def test_fast_path_declines_other_answers(body: bytes) -> None:
    assert not goes_the_short_way(body)


@pytest.mark.parametrize("wire", [ChatWire(think_tags="implied"), ChatWire(forced_tools="schema")])
def test_fast_path_declines_servers_with_special_options(wire: ChatWire) -> None:
    assert not goes_the_short_way(completion(), wire)


@settings(max_examples=40)
@given(
    text=st.text(max_size=12),
    more=st.dictionaries(
        st.sampled_from(["refusal", "reasoning_content", "annotations", "tool_calls", "mood"]),
        st.sampled_from([None, "", [], "x"]),
    ),
    reason=st.sampled_from(["stop", "length", None]),
    usage=st.none() | st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9)}),
    wire=wires(),
)
def test_fast_path_agrees_for_any_answer(
    text: str, more: dict[str, Any], reason: str | None, usage: Any, wire: ChatWire
) -> None:
    message = {"role": "assistant", "content": text, **more}
    goes_the_short_way(completion(message, usage=usage, choice={"finish_reason": reason}), wire)
