"""`gateway/compaction`: the content of a compaction, and what it replaces in a conversation."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from tests.gateway.test_conversation_steps import THINKS, TOOLS, call, custom, items, output, says
from tests.generate import conversations
from tests.store.stores import NO_LIMIT

from antiphon.errors import ClientFault
from antiphon.gateway.compaction import (
    MAX_VERBATIM_BYTES,
    CompactionOpener,
    add_summary,
    encode_contents_without_summary,
    fingerprint,
    open_compactions,
    select_verbatim_items,
)
from antiphon.gateway.conversation_steps import summary_message
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.sealing import Seal
from antiphon.protocol import codec
from antiphon.protocol.content import InputImageParam, InputText
from antiphon.protocol.items import CompactionParam, CompactionTrigger, ItemParam, MessageParam

SEAL = Seal(lambda: [b"k" * 32])
UNSEALING = CompactionOpener(seal=SEAL, owner="alice")
FOREIGN = CompactionParam(encrypted_content="gAAAAABpM0Yj")


def path_of(place: int) -> str:
    return f"input[{place}].encrypted_content"


def compaction(
    covered: list[ItemParam],
    summary: str = "sum",
    verbatim: list[ItemParam] | None = None,
    standing: list[ItemParam] | None = None,
) -> CompactionParam:
    prints = frozenset(map(fingerprint, covered))
    contents = add_summary(encode_contents_without_summary(standing or [], verbatim or [], prints), summary)
    return CompactionParam(encrypted_content=SEAL.encrypt("alice", contents))


def texts_of(window: list[ItemParam]) -> list[Any]:
    """Texts of messages; calls and outputs by their ids."""
    return [
        ("sum" if item == summary_message("sum") else item.content)
        if isinstance(item, MessageParam)
        else getattr(item, "call_id", item)
        for item in window
    ]


def test_compaction_is_replaced_by_its_summary_and_kept_items() -> None:
    """CMP-3."""
    verbatim = items(says("user", "last"), call("a"))
    item = compaction([], verbatim=verbatim, standing=items(says("system", "rules"), TOOLS))
    window = open_compactions([item, *items(output("a"))], UNSEALING, path_of, HistoryBudget(NO_LIMIT))
    assert texts_of(window[:1]) == ["rules"]
    assert texts_of(window[2:]) == ["sum", "last", "a", "a"]


def test_compaction_drops_covered_items_and_keeps_others() -> None:
    before = items(says("user", "old"), call("a"), output("a"), says("assistant", "done"), THINKS)
    unseen = items(says("developer", "new rules"), says("user", "cut…"))
    item = compaction(before, standing=items(says("system", "rules")))
    window = open_compactions(
        [*before[:2], *unseen, *before[2:], item, *items(says("user", "old"))],
        UNSEALING,
        path_of,
        HistoryBudget(NO_LIMIT),
    )
    assert texts_of(window) == ["rules", "new rules", "cut…", "sum", "old"]  # the same text after it is new


def test_compaction_drops_earlier_reasoning_in_any_form() -> None:
    shown = items({**THINKS, "summary": [{"type": "summary_text", "text": "Hm."}]})
    assert texts_of(open_compactions([*shown, compaction([])], UNSEALING, path_of, HistoryBudget(NO_LIMIT))) == ["sum"]


def test_fingerprint_is_equal_for_every_spelling_of_an_item() -> None:
    """ITEM-6: output is sent back as input, with ids and parts or without."""
    same = [
        items(
            says("assistant", "words"),
            {**says("assistant"), "content": [{"type": "output_text", "text": "words"}]},
            {
                **says("assistant"),
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "words", "annotations": [], "logprobs": []}],
            },
        ),
        items({**says("assistant"), "content": [{"type": "refusal", "refusal": "no"}]}, says("assistant", "no")),
        items(call("a"), {**call("a"), "id": "fc_1", "status": "completed"}),
        items(output("a"), {**output("a"), "id": "fco_1"}),
        items({"type": "acme:thing", "x": 1}, {"type": "acme:thing", "id": "at_1", "status": "completed", "x": 1}),
        items({"type": "web_search_call"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    ]
    for group in same:
        assert len(set(map(fingerprint, group))) == 1
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]
    different = [
        *(group[0] for group in same),
        *items(says("user", "words"), {**says("user"), "content": parts}, custom("b"), TOOLS),
    ]
    assert len(set(map(fingerprint, different))) == len(different)


@settings(max_examples=30)
@given(conversation=conversations.conversations())
def test_compaction_covers_its_own_conversation(conversation: list[ItemParam]) -> None:
    """CMP-2, CMP-3: all items can be sealed, recognised and dropped."""
    standing, verbatim = select_verbatim_items(conversation, 1000)
    item = compaction(conversation, verbatim=verbatim, standing=standing)
    after = codec.decode_as(codec.encode(conversation), list[ItemParam])
    assert open_compactions([*after, item], UNSEALING, path_of, HistoryBudget(NO_LIMIT)) == [
        *codec.decode_as(codec.encode(standing), list[ItemParam]),
        summary_message("sum"),
        *codec.decode_as(codec.encode(verbatim), list[ItemParam]),
    ]


def test_newest_compaction_replaces_older_ones_that_cannot_be_opened() -> None:
    """The key of an old one may be unavailable by now."""
    lost = CompactionParam(encrypted_content="antiphon1.AAAA")
    newest = compaction([lost, *items(says("user", "a"))])
    window = open_compactions(
        [lost, *items(says("user", "a")), newest, newest, *items(says("user", "b"))],
        UNSEALING,
        path_of,
        HistoryBudget(NO_LIMIT),
    )
    assert texts_of(window) == ["sum", "b"]


def test_compaction_that_the_newest_does_not_cover_is_opened() -> None:
    first = compaction([], verbatim=items(says("user", "a")), standing=items(says("system", "1")))
    second = compaction([], verbatim=items(says("user", "b")), standing=items(says("system", "2")))
    window = open_compactions(
        [first, *items(says("user", "c")), second, *items(says("user", "d"))],
        UNSEALING,
        path_of,
        HistoryBudget(NO_LIMIT),
    )
    assert texts_of(window) == ["1", "2", "sum", "a", "c", "sum", "b", "d"]


def test_answered_trigger_is_dropped() -> None:
    assert open_compactions(
        [*items(says("user")), CompactionTrigger()], UNSEALING, path_of, HistoryBudget(NO_LIMIT)
    ) == items(says("user"))


def test_compaction_that_cannot_be_opened_is_refused_with_its_path() -> None:
    """CMP-2: forged, damaged, of another owner, of another server."""
    good = compaction([])
    damaged = CompactionParam(encrypted_content=good.encrypted_content[:-5])
    bobs = CompactionOpener(seal=SEAL, owner="bob", keeps_foreign=True)
    for item, opener in ((damaged, UNSEALING), (good, bobs), (FOREIGN, UNSEALING)):
        with pytest.raises(ClientFault) as caught:
            open_compactions([*items(says("user")), item], opener, path_of, HistoryBudget(NO_LIMIT))
        error = caught.value
        assert (error.status, error.type, error.code) == (400, "invalid_request", "invalid_compaction")
        assert error.param == "input[1].encrypted_content"


def test_foreign_compaction_is_kept_with_everything_before_it() -> None:
    lenient = CompactionOpener(seal=SEAL, owner="alice", keeps_foreign=True)
    conversation = [*items(says("user")), FOREIGN, *items(says("user"))]
    assert open_compactions(conversation, lenient, path_of, HistoryBudget(NO_LIMIT)) == conversation


# Items that are kept


def verbatim_texts(room: int, *history: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    standing, verbatim = select_verbatim_items(items(*history), room)
    return texts_of(standing), texts_of(verbatim)


def test_system_text_last_turn_and_user_messages_are_kept() -> None:
    """CMP-3: recent turns and system text."""
    assert verbatim_texts(
        1000,
        says("system", "rules"),
        says("user", "first"),
        says("assistant", "gone"),
        call("a"),
        output("a"),
        says("developer", "more rules"),
        says("user", "last"),
        call("b"),
        output("b"),
        says("assistant", "so far"),
    ) == (["rules", "more rules"], ["first", "last", "b", "b", "so far"])


def test_newest_steps_of_a_long_turn_are_kept_whole() -> None:
    """An agent may work for hours on one message of its user."""
    steps = [step for at in range(50) for step in (call(f"c{at}"), {**output(f"c{at}"), "output": "word " * 20})]
    standing, verbatim = verbatim_texts(400, says("user", "go"), *steps)
    assert standing == []
    assert verbatim[0] == "go"
    assert 2 < len(verbatim) < 20
    assert verbatim[1:] == [f"c{at}" for at in range(50) for _ in range(2)][-len(verbatim[1:]) :]


def test_last_user_message_and_open_calls_are_always_kept() -> None:
    """CMP-3: open tool calls."""
    long = "word " * 1000
    assert verbatim_texts(
        10,
        says("user", "old"),
        call("open"),
        says("assistant", long),
        says("user", long),
        call("a"),
        output("a"),
        custom("b"),
    ) == ([], [long, "open", "b"])
    assert verbatim_texts(10, call("x"), call("y"), output("x")) == ([], ["x", "y", "x"])


def test_older_summary_is_not_kept() -> None:
    assert select_verbatim_items([summary_message("old"), *items(says("user", "last"))], 100) == (
        [],
        items(says("user", "last")),
    )


def test_repeated_system_text_is_kept_once() -> None:
    assert verbatim_texts(100, says("developer", "rules"), says("developer", "rules"), says("user", "x")) == (
        ["rules"],
        ["x"],
    )


def test_media_are_kept_unless_they_are_too_large() -> None:
    def seen(size: int) -> list[ItemParam]:
        picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * size}
        return items(
            {**says("user"), "content": [{"type": "input_text", "text": "Look:"}, picture]},
            call("a"),
            {**output("a"), "output": [picture]},
        )

    small = seen(10)
    assert select_verbatim_items(small, 10_000) == ([], small)
    _, verbatim = select_verbatim_items(seen(MAX_VERBATIM_BYTES // 2), 10_000)
    assert "image omitted" in codec.encode(verbatim).decode()
    assert len(codec.encode(verbatim)) < 1000
    assert [fingerprint(item) for item in verbatim[1:]] == [
        fingerprint(item) for item in small[1:]
    ]  # still calls and outputs


def test_compaction_before_one_of_another_server_is_opened() -> None:
    """The newest compaction is passed on unchanged, and the older one is replaced by its contents."""
    lenient = CompactionOpener(seal=SEAL, owner="alice", keeps_foreign=True)
    window = open_compactions([compaction([]), FOREIGN], lenient, path_of, HistoryBudget(NO_LIMIT))
    assert texts_of(window) == ["sum", FOREIGN]


@pytest.mark.parametrize(
    ("sent", "returned"),
    [
        ({"type": "input_image", "image_url": "u"}, {"type": "input_image", "image_url": "u", "detail": "auto"}),
        ({"type": "input_file", "filename": None, "file_id": "f"}, {"type": "input_file", "file_id": "f"}),
    ],
)
def test_fingerprint_of_media_ignores_defaults(sent: Any, returned: Any) -> None:
    """CMP-1: a returned user message covers the one that was sent, and items of earlier versions stay covered."""
    items = [
        codec.decode_stored(json.dumps({"role": "user", "content": [part]}).encode(), MessageParam)
        for part in (sent, returned)
    ]
    assert fingerprint(items[0]) == fingerprint(items[1])


def test_fingerprints_are_those_of_earlier_versions() -> None:
    """Compactions are stored by clients: their covered items must stay covered."""
    image = InputImageParam(image_url="https://example.com/a.png", detail="high")
    message = MessageParam(role="user", content=[InputText(text="Look."), image])
    assert fingerprint(message).hex() == "ace162672aecea6f"


def test_compaction_of_an_earlier_version_still_opens() -> None:
    """CMP-2: its form is fixed, because clients keep it."""
    covered = b64encode(fingerprint(MessageParam(role="user", content="Hi."))).decode()
    sealed = {
        "summary": "They greet.",
        "standing": [{"type": "message", "role": "system", "content": "Be brief."}],
        "kept": [{"type": "message", "role": "user", "content": "Hi."}],
        "covered": covered,
    }
    item = CompactionParam(encrypted_content=SEAL.encrypt("alice", json.dumps(sealed).encode()))
    history: list[ItemParam] = [
        MessageParam(role="user", content="Hi."),
        item,
        MessageParam(role="user", content="So?"),
    ]
    conversation = open_compactions(history, UNSEALING, path_of, HistoryBudget(NO_LIMIT))
    assert [item.content for item in conversation if isinstance(item, MessageParam)] == [
        "Be brief.",
        summary_message("They greet.").content,
        "Hi.",
        "So?",
    ]
