"""The openai SDK's `responses.stream()` over llama.cpp's own `/v1/responses`, which crashes it without the gateway.

A real model answers, so the requests are small and the tests do not check the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from tests.running import BOUND, Running, one_upstream, running

from antiphon.upstream.embedded import EmbeddedModel

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
ASKED: Any = {"model": "local", "input": "Say hello in one short sentence.", "temperature": 0}


@pytest.fixture(scope="module")
def gateway(llama_cpp: EmbeddedModel) -> Iterator[Running]:
    config = one_upstream(llama_cpp.base_url, dialect="responses", profile="llama.cpp", api_key_env="LLAMA_KEY")
    with running(config, environ={"LLAMA_KEY": llama_cpp.key}) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0, timeout=BOUND) as client:
        yield client


def test_llama_cpp_without_the_gateway_crashes_the_sdk(llama_cpp: EmbeddedModel) -> None:
    """If this fails one day, llama.cpp numbers its events, and its profile needs one setting less."""
    with OpenAI(base_url=llama_cpp.base_url, api_key=llama_cpp.key, max_retries=0, timeout=BOUND) as client:
        with client.responses.stream(**ASKED, max_output_tokens=16) as stream, pytest.raises(TypeError):
            list(stream)


def test_llama_cpp_streams_through_the_gateway(client: OpenAI) -> None:
    """API-6."""
    with client.responses.stream(**ASKED, max_output_tokens=200) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert final.output_text == "".join(deltas)
    assert final.status == "completed"
    assert final.usage is not None
    assert final.usage.output_tokens > 1
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_llama_cpp_answer_at_the_token_limit_is_incomplete(client: OpenAI) -> None:
    """The server reports `completed`; its usage says otherwise."""
    asked: Any = {**ASKED, "input": "Count from one to fifty, in words.", "max_output_tokens": 16}
    with client.responses.stream(**asked) as stream:
        last = list(stream)[-1]
    assert last.type == "response.incomplete"
    plain = client.responses.create(**asked)
    for response in (last.response, plain):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")  # type: ignore[union-attr]


def test_llama_cpp_accepts_its_output_as_history(client: OpenAI) -> None:
    """Items in the form of the SDK, and some that this server would refuse: unsupported ones are reported as lost."""
    first = client.responses.create(**ASKED, max_output_tokens=16)
    strange: Any = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I would rather not."}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "shout", "input": "hello"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "HELLO"},
    ]
    asked: Any = [*first.output, *strange, {"role": "user", "content": "And now good-bye."}]
    answer = client.responses.with_raw_response.create(**{**ASKED, "input": asked, "max_output_tokens": 16})
    second = answer.parse()
    assert second.output_text
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert answer.headers["antiphon-losses"] == "2; input[2].content[0], input[1]"


def test_llama_cpp_accepts_the_extra_fields_of_chat_clients(client: OpenAI) -> None:
    """REQ-7: its profile lists them."""
    extra: Any = {"top_k": 1, "seed": 7, "repetition_penalty": 1.1, "chat_template_kwargs": {"enable_thinking": False}}
    answer = client.chat.completions.with_raw_response.create(
        model="local", messages=[{"role": "user", "content": "Say hello."}], max_tokens=8, extra_body=extra
    )
    assert "antiphon-losses" not in answer.headers
    assert answer.parse().choices[0].message.content
