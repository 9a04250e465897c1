"""`gateway/compactor`: the model writes the summary, on any upstream."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import JSON, SSE, ScriptedAnswer, ScriptedTransport, target
from tests.gateway.test_compaction import path_of, texts_of
from tests.gateway.test_conversation_steps import call, output, says
from tests.store.stores import NO_LIMIT

from antiphon.dialects.common.token_estimate import estimate_text
from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.compaction import (
    MIN_SUMMARY_TOKENS,
    CompactionOpener,
    Conversation,
    EncodedConversation,
    add_summary,
    decode_contents,
    encode_contents_without_summary,
    encode_conversation,
    open_compactions,
)
from antiphon.gateway.compactor import (
    MAX_ATTEMPTS,
    MAX_SUMMARY_TOKENS,
    SUMMARY_INSTRUCTIONS,
    ZERO_USAGE,
    CompactionResult,
    Compactor,
    add_usage,
    compaction_usage,
    verbatim_user_messages,
)
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.sealing import Seal
from antiphon.gateway.worker import PICKLE_PROTOCOL, run_coroutine
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool, call_function
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.stamps import Stamps

SEAL = Seal(lambda: [b"k" * 32])
WORKERS = WorkerPool(1)  # small conversations start no process
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def stamps() -> Stamps:
    numbers = itertools.count()
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)


def answers(text: str, /, finish: Any = "stop", **usage: Any) -> ScriptedAnswer:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}]}
    return ScriptedAnswer([msgspec.json.encode({**body, "usage": usage} if usage else body)], JSON)


def too_long() -> ScriptedAnswer:
    return ScriptedAnswer(
        [b'{"error":{"message":"maximum context length is 99","code":"context_length_exceeded"}}'], JSON, 400
    )


def asked(*items: dict[str, Any], **fields: Any) -> Request:
    return codec.decode_request(msgspec.json.encode({"model": "m", "input": list(items), **fields}))


class PicklingPool(WorkerPool):
    """Runs jobs in this process; what would cross to another process is pickled."""

    def __init__(self) -> None:
        super().__init__(1)
        self.functions: list[str] = []  # that were called

    async def run(self, job: Any, *arguments: Any, answer: Any = None, owner: str = "") -> Any:
        del owner
        if job is call_function:
            self.functions.append(arguments[0].__name__)
        job, arguments = pickle.loads(pickle.dumps((job, arguments), PICKLE_PROTOCOL))

        def ask(name: str, *asked: Any, **options: Any) -> Any:
            return run_coroutine(answer(name, *asked, **options))

        result = run_coroutine(job(ask, *arguments))
        return pickle.loads(pickle.dumps(result, PICKLE_PROTOCOL))


def conversation_of(request: Request) -> Conversation:
    return Conversation(request=request, sealed_items=input_items(request))


def compact(
    request: Request,
    *answered: ScriptedAnswer | ApiError,
    dialect: str = "chat",
    context_size: int | None = None,
    threshold: int | None = None,
    workers: WorkerPool = WORKERS,
    encodes: bool = False,
) -> tuple[CompactionResult, list[Any], list[str]]:
    """The compaction, the requests that the upstream received, and the losses."""
    conversation: Conversation | EncodedConversation = conversation_of(request)
    if encodes:
        conversation = encode_conversation(conversation)
    compactor = Compactor(
        seal=SEAL, owner="alice", target=target(dialect), context_size=context_size, stamps=stamps(), workers=workers
    )
    transport, losses = ScriptedTransport(*answered), Losses()
    made = asyncio.run(compactor.compact(conversation, transport, losses, compaction_threshold=threshold))
    return made, [msgspec.json.decode(each.body) for each in transport.asked], [str(loss) for loss in losses]


def test_compactor_seals_the_summary_of_an_ordinary_turn() -> None:
    """CMP-3: on upstreams that do not support compaction."""
    request = asked(
        says("developer", "Be brief."),
        says("user", "The code word is slate."),
        call("a"),
        output("a"),
        says("user", "Go on."),
        instructions="You are kind.",
        prompt_cache_key="key",
        temperature=0.1,
        tools=[{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        tool_choice="required",
    )
    usage = {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99}
    made, (sent,), losses = compact(request, answers(" Notes: slate. ", **usage))
    assert made.item.id == "cmp_2" or made.item.id.startswith("cmp_")
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens, losses) == (90, 9, [])
    assert (sent["model"], sent["stream"]) == ("m", True)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["messages"][0]["content"] == SUMMARY_INSTRUCTIONS
    text = sent["messages"][1]["content"]
    for words in (
        "You are kind.",
        "The code word is slate.",
        "[tool call of the assistant: f, id a]\n{}",
        "[result of tool call a]\n42",
        "Go on.",
    ):
        assert words in text
    assert not {"tools", "tool_choice", "temperature"} & set(sent)
    window = open_compactions([made.item], CompactionOpener(seal=SEAL, owner="alice"), path_of, HistoryBudget(NO_LIMIT))
    assert window == decode_contents(made.content).items()
    assert decode_contents(made.content).summary == "Notes: slate."
    assert texts_of(window)[0] == "Be brief."
    assert texts_of(window)[2:] == ["The code word is slate.", "Go on."]


def test_compactor_accepts_streams_and_other_dialects() -> None:
    """CMP-3."""
    streamed = b'data: {"choices":[{"delta":{"content":"Notes."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    made, _, _ = compact(asked(says("user")), ScriptedAnswer([streamed], SSE))
    assert (decode_contents(made.content).summary, made.usage) == ("Notes.", None)
    message = {"type": "message", "id": "m", "status": "completed", "role": "assistant"}
    body = {
        "id": "r",
        "status": "completed",
        "output": [{**message, "content": [{"type": "output_text", "text": "Notes."}]}],
    }
    made, (sent,), _ = compact(
        asked(says("user")), ScriptedAnswer([msgspec.json.encode(body)], JSON), dialect="responses"
    )
    assert decode_contents(made.content).summary == "Notes."
    assert (sent["store"], sent["instructions"]) == (False, SUMMARY_INSTRUCTIONS)


def test_content_missing_from_a_summary_is_a_loss() -> None:
    picture = {"type": "message", "role": "user", "content": [IMAGE, IMAGE]}
    _, _, losses = compact(asked(picture), answers("Pictures.", "length"))
    assert losses == [
        "input: the content of 2 parts that are not text (a summary is made from text)",
        "output: the end of the summary (the model's summary was cut off)",
    ]


def test_compactor_retries_an_overlong_transcript_with_less() -> None:
    request = asked(*(says("user", f"{at} " + "word " * 500) for at in range(40)))
    made, sent, losses = compact(request, too_long(), too_long(), answers("Notes."))
    lengths = [estimate_text(each["messages"][1]["content"]) for each in sent]
    assert lengths[1] <= lengths[0] // 2 + 50
    assert lengths[2] <= lengths[1] // 2 + 50
    assert decode_contents(made.content).summary == "Notes."
    assert losses == [
        f"input: {losses[0].split()[1]} of the oldest items (they did not fit into the transcript for the summary)"
    ]


def test_compactor_fits_the_transcript_to_a_known_context() -> None:
    request = asked(*(says("user", f"{at} " + "word " * 500) for at in range(40)))
    _, (sent,), losses = compact(request, answers("Notes."), context_size=4096)
    assert 1024 in sent.values()
    assert estimate_text(sent["messages"][1]["content"]) + estimate_text(SUMMARY_INSTRUCTIONS) + 1024 <= 4096
    assert len(losses) == 1


def test_compactor_retries_an_empty_summary_with_a_higher_limit() -> None:
    request = asked(says("user", "Hi."))
    _, (sent,), _ = compact(request, answers("Notes."))
    assert MIN_SUMMARY_TOKENS in sent.values()
    made, sent, losses = compact(request, answers("", "length"), answers("Notes."))
    assert (MIN_SUMMARY_TOKENS in sent[0].values(), MAX_SUMMARY_TOKENS in sent[1].values()) == (True, True)
    assert (decode_contents(made.content).summary, losses) == ("Notes.", [])
    with pytest.raises(UpstreamFault):
        compact(request, answers("", "length"), answers("", "length"))


def test_compactor_keeps_its_result_below_the_threshold() -> None:
    request = asked(*(says("user", f"{at} " + "word " * 50) for at in range(40)))
    made, (sent,), _ = compact(request, answers("Notes."), threshold=800)
    assert 256 in sent.values()
    assert len(decode_contents(made.content).verbatim_items) == 1


@pytest.mark.parametrize(
    ("answered", "code"),
    [
        ([too_long()] * MAX_ATTEMPTS, "context_length_exceeded"),
        ([UpstreamFault("gone", code="upstream_unavailable")], "upstream_unavailable"),
        ([ScriptedAnswer([b'{"error":{"message":"slow down"}}'], JSON, 429)], "rate_limit_exceeded"),
        ([answers(" \n")], "upstream_invalid_response"),
    ],
)
def test_upstream_errors_are_raised_unchanged(answered: list[ScriptedAnswer | ApiError], code: str) -> None:
    """CMP-1."""
    with pytest.raises(ApiError) as caught:
        compact(asked(says("user", "word " * 2000)), *answered)
    assert caught.value.code == code


def test_compactor_without_a_key_makes_no_upstream_call() -> None:
    def no_key() -> list[bytes]:
        raise ApiError("no key", code="unsupported_parameter")

    transport = ScriptedTransport()
    compactor = Compactor(
        seal=Seal(no_key), owner="alice", target=target(), context_size=None, stamps=stamps(), workers=WORKERS
    )
    with pytest.raises(ApiError, match="no key"):
        asyncio.run(compactor.compact(conversation_of(asked(says("user"))), transport, Losses()))
    assert transport.asked == []


def test_add_usage_sums_usages() -> None:
    made, _, _ = compact(asked(says("user")), answers("a", prompt_tokens=5, completion_tokens=2, total_tokens=7))
    assert made.usage is not None
    both = add_usage(made.usage, made.usage)
    assert both is not None
    assert (both.input_tokens, both.output_tokens, both.total_tokens) == (10, 4, 14)
    assert add_usage(None, made.usage) == add_usage(made.usage, None) == made.usage
    assert add_usage(None, None) is None


def test_missing_usage_of_the_summary_is_a_loss() -> None:
    made, _, _ = compact(asked(says("user")), answers("a"))
    losses = Losses()
    assert compaction_usage(made, losses) == ZERO_USAGE
    assert [loss.path for loss in losses] == ["usage"]


def test_user_messages_have_the_fields_that_an_output_requires() -> None:
    """CMP-1: in the order of the conversation, without the messages of others."""
    parts = [
        {"type": "input_text", "text": "a"},
        IMAGE,
        {"type": "input_file", "filename": None, "file_url": "u"},
        {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
    ]
    request = asked(says("system", "s"), says("user", "q"), says("assistant", "r"), {"role": "user", "content": parts})
    contents = add_summary(encode_contents_without_summary([], input_items(request), frozenset()), "s")
    messages = verbatim_user_messages(contents, stamps())
    assert msgspec.to_builtins([message.content for message in messages]) == [
        [{"type": "input_text", "text": "q"}],
        [
            {"type": "input_text", "text": "a"},
            {**IMAGE, "detail": "auto"},
            {"type": "input_file", "file_url": "u"},
            {"type": "input_text", "text": "b"},
        ],
    ]


def test_large_conversation_is_compacted_in_worker_processes() -> None:
    """The result is the same as in this process. The last user message alone is larger than what is computed here."""
    request = asked(
        says("developer", "Be brief."),
        call("a"),
        output("a"),
        says("user", "The code word is slate. " + "word " * (LARGE_INPUT // 5)),
        prompt_cache_key="key",
    )
    pool = PicklingPool()
    here, sent_here, losses_here = compact(request, too_long(), answers("Notes."), workers=pool)
    assert pool.functions == ["_encrypt"]
    pool.functions.clear()
    made, sent, losses = compact(request, too_long(), answers("Notes."), workers=pool, encodes=True)
    assert pool.functions == ["draft_compaction", "draft_compaction", "_encrypt"]
    assert (made.content, sent, losses) == (here.content, sent_here, losses_here)
    assert SEAL.decrypt("alice", made.item.encrypted_content) == made.content
