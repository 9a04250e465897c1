"""`gateway/recall`, and what `gateway/preparing` makes of it: a conversation that goes on is read and translated as if nobody knew
any of it, and nobody is told of anybody else's."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.scripted import target
from tests.generate.conversations import requests

from antiphon.config import Config, UpstreamConfig
from antiphon.errors import ApiError
from antiphon.gateway import preparing
from antiphon.gateway import recall as recalling
from antiphon.gateway.keeping import written_down
from antiphon.gateway.preparing import prepare
from antiphon.gateway.recall import LIFE, MOST_ALIKE, Continued, Recall, Recalled, items_in
from antiphon.gateway.routes import Routes, Target
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_request
from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import Request, input_items
from antiphon.upstream.speech import History

ROOM = 1 << 20
INSTRUCTIONS = "Be brief. " * 30  # so that the request is worth it
SEPARATORS = [(",", ":"), (", ", ": "), (" ,\n ", "\t: ")]


def user(text: str = "Hi") -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text: str = "Yes.", role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}", **more}


def output(id: str = "c", value: Any = "42") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": value}


REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
TURNS = [
    [user()],
    [user("")],
    [said()],
    [call(), output()],
    [said(), call("d"), output("d")],
    [said("Be kind.", "system")],
    [REASONING],
]
SETTINGS: list[dict[str, Any]] = [{}, {}, {}, {"temperature": 1.0}, {"stream": True}, {"store": False, "tool_choice": "none"}]
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]


def body_of(items: list[dict[str, Any]], separators: tuple[str, str] = (",", ":"), **fields: Any) -> bytes:
    members = {"model": "m", "instructions": INSTRUCTIONS, "input": items, "tools": TOOLS, "temperature": 0.5, **fields}
    return json.dumps(members, separators=separators, ensure_ascii=False).encode()


def new(room: int = ROOM) -> Recall:
    return Recall(room, lambda: 0.0)


def read(recall: Recall, body: bytes, owner: str = "alice") -> Recalled:
    recalled = recall.read(owner, body)
    assert recalled is not None
    return recalled


def is_known(recalled: Recalled) -> bool:
    return recalled.frame.recurs


def assert_same(recall: Recall, body: bytes, to: Target) -> bool:
    """Whatever is remembered, a request is what it is, and so is what is sent; True if something was remembered."""
    try:
        wanted = decode_request(body)
    except ApiError:
        assert recall.read("alice", body) is None
        return False
    recalled = recall.read("alice", body)
    if recalled is None:
        return False
    assert_prepared_as_ever(recalled, wanted, to)
    assert_kept_as_ever(recalled, wanted)
    return is_known(recalled)


def assert_kept_as_ever(recalled: Recalled, wanted: Request) -> None:
    assert written_down(recalled.whole.items, recalled) == written_down(input_items(wanted))


def assert_prepared_as_ever(recalled: Recalled, wanted: Request, to: Target) -> None:
    assert recalled.request == wanted
    for keeps in (False, True):
        try:
            plain = prepare(wanted, to, keeps=keeps)
        except ApiError as error:
            with pytest.raises(type(error)):
                prepare(recalled.request, to, keeps=keeps, recalled=recalled)
            continue
        prepared = prepare(recalled.request, to, keeps=keeps, recalled=recalled)
        assert prepared.body == plain.body
        assert list(prepared.losses) == list(plain.losses)
        assert (prepared.request, prepared.sent) == (plain.request, plain.sent)
        assert (prepared.repeat is None) == (plain.repeat is None)
        assert prepared.opening_with("resp_1", 7) == plain.opening_with("resp_1", 7)


@given(data=st.data(), separators=st.sampled_from(SEPARATORS))
def test_a_conversation_that_goes_on_is_read_as_if_nobody_knew_it(data: st.DataObject, separators: tuple[str, str]) -> None:
    """However its turns come: one after the other, one again, a few at once, back to an earlier one, with other settings."""
    recall, to = new(), target("chat")
    turns = data.draw(st.lists(st.sampled_from(TURNS), min_size=1, max_size=6))
    conversation = [item for turn in turns for item in turn]
    ends = data.draw(st.lists(st.integers(0, len(conversation)), min_size=1, max_size=8))
    for end in ends if data.draw(st.booleans()) else sorted(ends):
        fields = data.draw(st.sampled_from(SETTINGS))
        assert_same(recall, body_of(conversation[:end], separators, **fields), to)


@given(before=requests(), after=requests(), dialect=st.sampled_from(["chat", "responses", "messages", "gemini"]))
def test_any_conversation_before_any_server(before: Request, after: Request, dialect: str) -> None:
    recall, to = new(), target(dialect)
    items = [*input_items(before), *input_items(after)]
    for end in (len(items) // 2, len(items), len(items)):
        request = msgspec.structs.replace(before, model="m", input=items[:end], instructions=INSTRUCTIONS)
        assert_same(recall, codec.encode(request), to)


@given(data=st.data())
def test_damaged_bodies_are_refused_as_ever(data: st.DataObject) -> None:
    """No byte that is wrong is passed over because those before it were right."""
    recall, to = new(), target("chat")
    known = body_of([user(), said(), user("And?")])
    for _ in range(2):
        assert_same(recall, known, to)
    body = body_of([user(), said(), user("And?"), call(), output(), user("Well.")])
    at = data.draw(st.integers(0, len(body) - 1))
    piece = data.draw(st.sampled_from([b"", b",", b"]", b"[", b"{", b"}", b'"', b" ", b"\\", b"\xff", b'],"input":[', b"null"]))
    cut = data.draw(st.integers(0, 3))
    assert_same(recall, body[:at] + piece + body[at + cut :], to)


@pytest.mark.parametrize("more", [b",", b",]", b" ", b"null", b"{}", b',{"type":"message","role":"user","content":"x"},'])
def test_what_goes_on_wrongly_is_not_read_here(more: bytes) -> None:
    recall = new()
    body = body_of([user(), said()])
    read(recall, body)
    end = body.rindex(b"]", 0, body.index(b'"tools"'))
    assert_same(recall, body[:end] + more + body[end:], target("chat"))


def test_a_turn_that_follows_another_is_known_but_for_what_is_new() -> None:
    recall = new()
    first = read(recall, body_of([user()]))
    assert not is_known(first)
    second = read(recall, body_of([user(), said(), user("And?")]))
    assert is_known(second)
    assert second.before is first.whole
    assert second.frame is first.frame
    assert len(recall) == 1  # it went on: nobody goes on from where it was
    other_end = read(recall, body_of([user(), said(), user("Or?")]))
    assert other_end.before.items == second.whole.items[:-1]
    again = read(recall, body_of([user(), said(), user("Or?")]))
    assert again.before is other_end.whole
    assert read(recall, body_of([user(), said()])).before is other_end.before
    third_end = read(recall, body_of([user(), said(), user("Hm?")]))
    assert third_end.before is other_end.before
    assert len(recall) == 1
    another = read(recall, body_of([user("Hello?"), said()]))  # with the same settings, and nothing in common
    assert another.frame is first.frame
    assert another.before.items == []
    assert len(recall) == 2


def test_what_is_known_is_not_written_again() -> None:
    recall, to = new(), target("chat")
    conversation: list[dict[str, Any]] = [user()]
    for turn in range(5):
        recalled = read(recall, body_of(conversation))
        prepared = prepare(recalled.request, to, recalled=recalled)
        assert prepared.body == prepare(decode_request(body_of(conversation)), to).body
        assert bool(recalled.whole.known) == (turn >= 2)  # seen twice, it is worth finding out
        conversation += [said(), call(f"c{turn}"), output(f"c{turn}"), user(str(turn))]


def test_a_request_that_was_changed_on_the_way_is_prepared_in_full() -> None:
    recall, to = new(), target("chat")
    for _ in range(3):
        recalled = read(recall, body_of([user()]))
        prepare(recalled.request, to, recalled=recalled)
    changed = msgspec.structs.replace(
        recalled.request, input=[*input_items(recalled.request), *input_items(Request(input="More."))]
    )
    assert b"More." in prepare(changed, to, recalled=recalled).body


def test_what_is_lost_of_one_turn_is_not_lost_of_the_next() -> None:
    """Whoever has a prepared turn adds to its losses what else was lost."""
    recall, to = new(), target("chat")
    for _ in range(4):
        recalled = read(recall, body_of([user()], metadata={"a": "b"}))
        prepared = prepare(recalled.request, to, recalled=recalled)
        assert [loss.path for loss in prepared.losses] == ["metadata"]
        prepared.losses.add("input", "more", "elsewhere")


def test_quirks_that_look_at_the_conversation_see_it() -> None:
    """Such a profile is asked every time."""
    config = Config(
        upstreams=[UpstreamConfig(name="u", dialect="chat", base_url="http://127.0.0.1:1", profile="llama-cpp", models=["*"])]
    )
    to = Routes(config, {}, {}).find("m")
    assert to.upstream.profile.looks_at_history
    recall = new()
    for _ in range(3):
        recalled = read(recall, body_of([user(), said(), user("And?")]))
        prepare(recalled.request, to, recalled=recalled)
        assert recalled.frame.known == {}


def test_owners_do_not_share() -> None:
    """A-5: what one owner sent is as unknown to another as if nobody had sent it."""
    recall = new()
    read(recall, body_of([user()]), "alice")
    assert not is_known(read(recall, body_of([user(), said(), user()]), "bob"))
    assert is_known(read(recall, body_of([user(), said(), user()]), "alice"))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","input":[]}',
        body_of([]).replace(b"[]", b'"Hi"'),
        body_of([]).replace(b"[]", b"null"),
        body_of([user()])[:-1] + b',"mood":{"input":[1]}}',
        body_of([user()]).replace(b'"input"', b'"\\u0069nput"'),
        body_of([{**user(), "mood": 1}]),
    ],
)
def test_what_cannot_be_told_apart_is_not_kept(body: bytes) -> None:
    recall = new()
    assert recall.read("alice", body) is None
    assert len(recall) == 0


def test_a_place_of_the_same_name_that_holds_the_same_is_not_mistaken() -> None:
    """Items in the schema of a tool are no conversation, be they the same to the byte."""
    items = json.dumps([user()], separators=(",", ":"))
    tools = [{"type": "function", "name": "f", "parameters": {"default": {"input": json.loads(items)}}}]
    members = {"model": "m", "instructions": INSTRUCTIONS, "tools": tools, "input": json.loads(items)}
    body = json.dumps(members, separators=(",", ":")).encode()
    assert new().read("alice", body) is None
    assert decode_request(body).input


def test_what_is_remembered_has_a_bound() -> None:
    size = len(body_of([user("000")]))
    recall = new(room=3 * size)
    for number in range(10):
        read(recall, body_of([user(f"{number:03}")]).replace(b'"m"', b'"%d"' % number))
        assert len(recall) <= 3
    assert len(recall) == 3
    assert recall.read("alice", body_of([user("x" * 4 * size)])) is None
    assert new(room=0).read("alice", body_of([user()])) is None


def test_among_many_that_begin_alike_the_latest_are_remembered() -> None:
    recall = new()
    for number in range(MOST_ALIKE + 3):
        read(recall, body_of([user(f"{number:03}"), said()]))
    assert len(recall) == MOST_ALIKE
    assert read(recall, body_of([user("003"), said(), user()])).before.items
    read(recall, body_of([user("new"), said()]))  # for which another has to go, but not the one that went on
    assert read(recall, body_of([user("003"), said(), user(), said()])).before.items
    assert not read(recall, body_of([user("004"), said(), user()])).before.items
    assert not read(recall, body_of([user("000"), said(), user()])).before.items


def test_what_nobody_goes_on_from_is_forgotten() -> None:
    now = 0.0
    recall = Recall(ROOM, lambda: now)
    read(recall, body_of([user("a")]))
    now = LIFE / 2
    read(recall, body_of([user("b"), said()]))
    now = LIFE + 1
    recall.forget_old()
    assert len(recall) == 1
    now = 2 * LIFE
    recall.forget_old()
    assert len(recall) == 0


# Conversations that are kept


def kept(turns: list[list[dict[str, Any]]]) -> bytes:
    """Turns as the store gives them."""
    return b",".join(json.dumps(turn, separators=(",", ":")).encode() for turn in turns)


def continued(recall: Recall, turns: list[list[dict[str, Any]]], owner: str = "alice") -> Continued:
    found = recall.read_kept(owner, kept(turns))
    assert found is not None
    return found


def going_on(from_there: Continued, *items: dict[str, Any], **fields: Any) -> Recalled:
    """A request that continues it."""
    request = decode_request(body_of(list(items), **fields))
    return from_there.by(msgspec.structs.replace(request, input=from_there.whole.items + input_items(request)))


LONG = [user("Hi. " * 100)]  # so that it is worth it


@given(st.data())
def test_a_kept_conversation_that_goes_on_is_read_as_if_nobody_knew_it(data: st.DataObject) -> None:
    """PREV-1: however it goes on, also from an earlier turn, also where another ends in the middle of one, also with other
    settings."""
    recall, to = new(), target("chat")
    known: list[list[list[dict[str, Any]]]] = [[LONG]]
    for number in range(data.draw(st.integers(1, 6))):
        before = data.draw(st.sampled_from(known))
        turns = [*before[: data.draw(st.integers(1, len(before)))], *data.draw(st.lists(st.sampled_from(TURNS), max_size=3))]
        known.append(turns)
        for again in range(data.draw(st.integers(1, 3))):
            fields = {"previous_response_id": f"resp_{number}_{again}", **data.draw(st.sampled_from(SETTINGS))}
            own = data.draw(st.sampled_from(TURNS))
            from_there = continued(recall, turns)
            if data.draw(st.booleans()):  # somebody else was quicker
                going_on(continued(recall, [*turns, [user("Me too.")], [said()]]), user(), **fields)
            request = decode_request(body_of(own, **fields))
            wanted = msgspec.structs.replace(request, input=items_in(kept(turns)) + input_items(request))
            assert_prepared_as_ever(going_on(from_there, *own, **fields), wanted, to)


def test_of_a_kept_conversation_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def look(written: bytes) -> list[ItemParam]:
        seen.append(written)
        return items_in(written)

    monkeypatch.setattr(recalling, "items_in", look)
    recall = new()
    first, second = [LONG, [said()]], [LONG, [said()], [user()], [said("No.")]]
    for turns in (first, first, second, second):
        continued(recall, turns)
    assert seen == [kept(first), kept([[user()], [said("No.")]])]
    continued(recall, second, "bob")
    continued(recall, first)  # a branch
    assert seen[2:] == [kept(second), kept(first)]
    assert recall.read_kept("alice", kept([[user()]])) is None  # too short to be worth it
    assert new(room=300).read_kept("alice", kept(first)) is None
    assert len(recall) == 3


def test_of_a_kept_conversation_only_what_is_new_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its settings came a second time and the third turn knows the way."""
    seen: list[int] = []
    go_on = preparing._go_on

    def look(told: History, items: list[ItemParam]) -> History | None:
        seen.append(len(items))
        return go_on(told, items)

    monkeypatch.setattr(preparing, "_go_on", look)
    recall, to = new(), target("chat")
    turns = [LONG, [said()]]
    for number in range(5):
        recalled = going_on(continued(recall, turns), user(str(number)), previous_response_id=f"resp_{number}")
        prepare(recalled.request, to, keeps=True, recalled=recalled)
        turns = [*turns, [user(str(number))], [said(str(number))]]
    assert seen == [4, 2, 1, 2, 1, 2, 1]  # before the third turn, since then, its own; then no more than is new


@pytest.mark.parametrize("own", [[user("I.")], [user("I"), user("too.")], [user("I"), said(), user("too.")]])
def test_who_goes_on_meanwhile_is_not_mistaken(own: list[dict[str, Any]]) -> None:
    """Between looking a chain up and continuing it a turn may wait for the store, and another may be quicker."""
    recall, to = new(), target("chat")
    turns = [LONG, [said()]]
    for _ in range(3):
        recalled = going_on(continued(recall, turns), user())
        prepare(recalled.request, to, recalled=recalled)
    from_there = continued(recall, turns)
    quicker = going_on(continued(recall, [*turns, [user("Me first.")], [said("You.")]]), user())
    prepare(quicker.request, to, recalled=quicker)
    request = decode_request(body_of(own))
    wanted = msgspec.structs.replace(request, input=items_in(kept(turns)) + input_items(request))
    assert_prepared_as_ever(going_on(from_there, *own), wanted, to)


def test_what_was_found_out_for_other_settings_is_not_kept() -> None:
    recall, to = new(), target("chat")
    for number in range(20):
        recalled = going_on(continued(recall, [LONG, [said()]]), user(), temperature=number // 4 / 10)
        prepare(recalled.request, to, keeps=True, recalled=recalled)
        assert recalled.almost is not None
        assert len(recalled.almost.known) == (number % 4 > 1)


def test_what_cannot_be_read_changes_nothing() -> None:
    recall = new()
    first = continued(recall, [LONG])
    with pytest.raises(ApiError):
        recall.read_kept("alice", kept([LONG, [{"type": "message"}]]))
    assert continued(recall, [LONG]) == first
    assert recall._taken == len(kept([LONG]))


def test_kept_conversations_have_the_same_bound_and_are_forgotten_too() -> None:
    size = len(body_of([user()]))
    recall = new(room=3 * size)
    for number in range(10):
        continued(recall, [[user(f"{number:03}" + "x" * (size - 100))]])
        assert len(recall) == min(3, number + 1)
    read(recall, body_of([user()]))  # a request needs room of the same
    assert len(recall) == 3
    recall = new()
    for number in range(MOST_ALIKE + 3):
        continued(recall, [LONG, [user(str(number))]])
    assert len(recall) == MOST_ALIKE
    recall._now = lambda: LIFE + 1
    recall.forget_old()
    assert len(recall) == 0
    assert not recall._chains
