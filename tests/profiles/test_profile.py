"""Parsing profiles from text: their meaning, inheritance, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles.requests import call_ids, requests

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.registry import SERVER_DIALECT_NAMES
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ProfileError
from antiphon.profiles.profile import Profile, parse_profile
from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.reasoning import ReasoningAsTextOptions
from antiphon.protocol.codec import decode_request, encode
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import Request, input_items

QUOTED_NAMES = ", ".join(f'"{name}"' for name in sorted(SERVER_DIALECT_NAMES))
BASE = """
about = "a base"
dialect = "chat"
quirks = ["developer_as_system", { name = "reasoning_as_text", before = "(", after = ")" }]
[wire]
max_tokens = "max_completion_tokens"
extra_fields = ["top_k"]
"""
# D-1: what one gateway of this API accepts, found by experiments.
D1 = """
about = "takes messages only; facts from an empirical table"
dialect = "responses"
quirks = [
    "tool_history_as_text",
    "assistant_as_string",
    "system_to_instructions",
    { name = "only_items", types = ["message"] },
]
"""


def profiles(**texts: str) -> Callable[[str], Profile]:
    """Profiles by name, without files."""

    def find(name: str) -> Profile:
        return parse_profile(texts[name], name, find_parent=find)

    return find


# Meaning


def test_profile_inherits_and_overrides_foreign_reasoning() -> None:
    """RSN-3: it is dropped unless a profile wants it as text."""
    texts = {
        "base": 'about = "x"\ndialect = "chat"\nforeign_reasoning = "text"',
        "same": 'about = "x"\nextends = "base"',
        "other": 'about = "x"\nextends = "base"\nforeign_reasoning = "drop"',
    }
    find = profiles(**texts)
    assert [find(name).foreign_reasoning for name in texts] == ["text", "text", "drop"]
    with pytest.raises(ProfileError, match="foreign_reasoning"):
        parse_profile('about = "x"\ndialect = "chat"\nforeign_reasoning = "keep"', "odd")


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "gemini"])
def test_foreign_reasoning_can_be_sent_as_text_in_every_dialect(dialect: str) -> None:
    """RSN-3: reasoning of another server, with its text or the text of its envelope; its own is unchanged."""
    profile = parse_profile(
        f'about = "x"\ndialect = "{dialect}"\nforeign_reasoning = "text"\nwire.maker = "lab"', "odd"
    )
    shown: dict[str, Any] = {"content": [{"type": "reasoning_text", "text": "Hm."}]}
    own = {"type": "reasoning", "summary": [], "encrypted_content": seal_reasoning("lab", {"x": 1}), **shown}
    foreign = {**own, "encrypted_content": seal_reasoning("other", {"thinking": 3, "text": "Hm."})}
    bare = {**foreign, "content": []}
    blind = {**bare, "encrypted_content": seal_reasoning("other", {"redacted": "x"})}
    unsealed = {"type": "reasoning", "summary": [], **shown}
    native = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    body = {"model": "m", "input": [own, foreign, bare, blind, unsealed, native, {"role": "user", "content": "hi"}]}
    request, losses = profile.apply_quirks(decode_request(msgspec.json.encode(body)))
    thoughts = MessageParam(role="assistant", content="<think>\nHm.\n</think>")
    items = input_items(request)
    accepts_unsealed = dialect in ("chat", "responses")
    assert items[1:3] == [thoughts, thoughts]
    assert (items[3] == thoughts) is not accepts_unsealed
    assert [type(items[at]).__name__ for at in (0, 4, 5)] == ["ReasoningParam", "ReasoningParam", "MessageParam"]
    assert [loss.path for loss in losses] == [
        "input[1].encrypted_content",
        "input[2].encrypted_content",
        "input[3].encrypted_content",
        "input[3]",
    ]


def test_headers_are_inherited_one_by_one_and_other_settings_as_a_whole() -> None:
    texts = {
        "base": 'about = "x"\ndialect = "chat"\nkey_header = "api-key"\npass_headers = ["a"]\n[headers]\nx-one = "1"\nx-two = "2"',
        "same": 'about = "x"\nextends = "base"\n[headers]\nx-two = "two"',
        "other": 'about = "x"\nextends = "base"\nkey_header = "authorization"\npass_headers = []',
    }
    same, other = map(profiles(**texts), ("same", "other"))
    assert (same.key_header, same.pass_headers, same.headers) == ("api-key", ("a",), {"x-one": "1", "x-two": "two"})
    assert (other.key_header, other.pass_headers, other.headers) == ("authorization", (), {"x-one": "1", "x-two": "2"})


def test_profile_has_its_quirks_and_wire_options() -> None:
    profile = parse_profile(BASE, "base")
    assert (profile.name, profile.dialect, profile.about) == ("base", "chat", "a base")
    assert [quirk.name for quirk in profile.quirks] == ["developer_as_system", "reasoning_as_text"]
    assert profile.quirks[1].options == ReasoningAsTextOptions(before="(", after=")")
    assert isinstance(profile.wire, ChatWire)
    assert profile.wire.max_tokens == "max_completion_tokens"
    assert list(profile.wire.extra_fields) == ["top_k"]
    assert profile.wire.system == ChatWire().system


def test_profile_without_settings_is_the_plain_dialect() -> None:
    profile = parse_profile('about = "plain"\ndialect = "responses"', "plain")
    assert profile.wire == ResponsesWire()
    request = decode_request(b'{"input":"hi"}')
    prepared, losses = profile.apply_quirks(request)
    assert prepared is request
    assert len(losses) == 0


def test_quirks_run_in_the_listed_order() -> None:
    one = parse_profile(
        'about = ""\ndialect = "chat"\nquirks = ["developer_as_system", "system_to_instructions"]', "one"
    )
    other = parse_profile(
        'about = ""\ndialect = "chat"\nquirks = ["system_to_instructions", "developer_as_system"]', "other"
    )
    request = decode_request(b'{"input":[{"role":"developer","content":"Be kind."},{"role":"user","content":"hi"}]}')
    assert one.apply_quirks(request)[0].instructions == "Be kind."
    assert not other.apply_quirks(request)[0].instructions


def test_child_profile_overrides_its_parent_key_by_key() -> None:
    child = """
about = "a child"
extends = "base"
quirks = ["drop_item_ids"]
[wire]
system = "first"
max_tokens = "max_tokens"
"""
    profile = profiles(base=BASE, child=child)("child")
    assert [quirk.name for quirk in profile.quirks] == ["developer_as_system", "reasoning_as_text", "drop_item_ids"]
    assert (profile.name, profile.about, profile.dialect) == ("child", "a child", "chat")
    assert isinstance(profile.wire, ChatWire)
    assert (profile.wire.system, profile.wire.max_tokens) == ("first", "max_tokens")
    assert list(profile.wire.extra_fields) == ["top_k"]


def test_child_profile_can_remove_a_quirk_and_a_grandchild_add_it_again() -> None:
    find = profiles(
        base=BASE,
        child='about = ""\nextends = "base"\nquirks = ["-developer_as_system"]',
        grandchild='about = ""\nextends = "child"\ndialect = "chat"\nquirks = ["developer_as_system"]',
    )
    assert [quirk.name for quirk in find("child").quirks] == ["reasoning_as_text"]
    assert [quirk.name for quirk in find("grandchild").quirks] == ["reasoning_as_text", "developer_as_system"]


def test_quirks_can_be_tables() -> None:
    text = 'about = ""\ndialect = "chat"\n[[quirks]]\nname = "only_items"\ntypes = ["message"]\n'
    assert [quirk.name for quirk in parse_profile(text, "x").quirks] == ["only_items"]


def test_empirical_table_is_expressed_as_a_profile() -> None:
    """D-1, D-2: the profile converts a conversation with a tool to what such a server accepts."""
    request = decode_request(
        msgspec.json.encode(
            {
                "model": "m",
                "input": [
                    {"role": "system", "content": "You are a helpful assistant."},
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "Let me check the time."}]},
                    {"type": "function_call", "call_id": "call_123", "name": "get_time", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "call_123", "output": "The current time is 3:00 PM"},
                    {"type": "compaction", "encrypted_content": "x"},
                ],
            }
        )
    )
    prepared, losses = parse_profile(D1, "d1").apply_quirks(request)
    body: dict[str, Any] = msgspec.json.decode(encode(prepared))
    assert body["instructions"] == "You are a helpful assistant."
    assert [(item["role"], item["content"]) for item in body["input"]] == [
        ("developer", "Be brief."),
        ("user", [{"type": "input_text", "text": "What time is it?"}]),
        ("assistant", "Let me check the time.\n\n[Tool Call: get_time({}) -> call_id: call_123]"),
        ("user", "[Tool Result for call_123]: The current time is 3:00 PM"),
    ]
    assert [loss.what for loss in losses] == ["an item of type 'compaction'"]


@settings(max_examples=40)
@given(request_=requests())
def test_empirical_profile_satisfies_its_constraints_for_any_conversation(request_: Request) -> None:
    """D-1: no calls, no results, only messages; assistant history as strings."""
    prepared, _ = parse_profile(D1, "d1").apply_quirks(request_)
    for item in input_items(prepared):
        assert isinstance(item, MessageParam)
        assert item.role != "assistant" or isinstance(item.content, str)
    assert call_ids(prepared) == call_ids(request_)


# Errors


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (
            'about = "x"\ndialect = "chatt"',
            2,
            [
                f'dialect: expected one of {QUOTED_NAMES}, got "chatt"',
                "mean 'chat'",
            ],
        ),
        ('about = "x"\n\ndialekt = "chat"', 3, ["dialekt: unknown setting", "mean 'dialect'"]),
        ('about = 3\ndialect = "chat"', 1, ["about: expected a string, got 3"]),
        (
            'about = "x"\ndialect = "chat"\n[wire]\n# why\nmax_token = "a"',
            5,
            ["wire.max_token: unknown", "mean 'max_tokens'"],
        ),
        ('about = "x"\ndialect = "chat"\nwire.max_token = "a"', 3, ["wire.max_token: unknown"]),
        (
            'about = "x"\ndialect = "chat"\n[wire]\nmax_tokens = "max_token"',
            4,
            ["expected one of", ', got "max_token"', "max_tokens'"],
        ),
        (
            'about = "x"\ndialect = "chat"\n[wire]\nimages = "yes"',
            4,
            ['wire.images: expected true or false, got "yes"'],
        ),
        (
            'about = "x"\ndialect = "chat"\n[wire]\nsystem = "first"\nfields = [\n 1,\n]',
            5,
            ["wire.fields", "an array of strings"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [\n "drop_reasoning",\n "drop_ids",\n]',
            5,
            ["unknown quirk 'drop_ids'", "?"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [\n "drop_reasoning", "zzz" ]',
            4,
            ["unknown quirk 'zzz'; available: "],
        ),
        (
            'about = "x"\r\ndialect = "chat"\r\nquirks = [3]\r\n',
            3,
            ["expected a name, or a table with a name and options, got 3"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [{ nam = "a" }]',
            3,
            ['expected a name, or a table with a name and options, got {"nam":"a"}'],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [{ name = "system_to_instructions", move = "every" }]',
            3,
            ['quirk system_to_instructions: move: expected one of "all", "leading", got "every"'],
        ),
        (
            'about = "x"\ndialect = "chat"\n[[quirks]]\nname = "reasoning_as_text"\nbefor = "<"',
            5,
            ["quirk reasoning_as_text: befor: unknown setting", "mean 'before'"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [{ name = "drop_reasoning", all = true }]',
            3,
            ["quirk drop_reasoning: all: unknown setting"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = ["only_items"]',
            3,
            ["quirk only_items: types is missing: expected an array of strings"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = [{ name = "only_items", types = ["mesage"] }]',
            3,
            ["quirk only_items: unknown item type 'mesage'; did you mean 'message'?"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = ["-drop_reasoning"]',
            3,
            ["'-drop_reasoning' removes a quirk that is not inherited"],
        ),
        (
            'about = "x"\ndialect = "chat"\nquirks = ["drop_reasoning", "-drop_reasonin"]',
            3,
            ["'-drop_reasonin' removes a quirk that is not inherited; did you mean 'drop_reasoning'?"],
        ),
        ('about = "x"\nextends = "base"', 2, ["extends 'base': no other profile is available here"]),
        (
            'about = "x"\ndialect = "chat"\n[headers]\nX-Lab = "a"',
            4,
            ['headers: expected a lowercase name and a value on one line, got "X-Lab" = "a"'],
        ),
        ('about = "x"\ndialect = "chat"\n[headers]\nx-lab = "a\\nb"', 4, ["a value on one line"]),
        ('about = "x"\ndialect = "chat"\n[headers]\nx-lab = ""', 4, ["a value on one line"]),
    ],
)
def test_profile_error_has_file_and_line(text: str, line: int, expected: list[str]) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "mine", file="mine.toml")
    message = str(caught.value)
    assert message.startswith(f"mine.toml, line {line}: ")
    for words in expected:
        assert words in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("about = ", "mine: not valid TOML: "),
        ('dialect = "chat"', "mine: about is missing: expected a string"),
        (
            'about = "x"',
            f"mine: expected dialect ({', '.join(SERVER_DIALECT_NAMES)}) or extends, got neither",
        ),
    ],
)
def test_profile_error_for_a_missing_setting_has_no_line(text: str, expected: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "mine")
    assert str(caught.value).startswith(expected)


def test_child_profile_of_another_dialect_is_refused() -> None:
    find = profiles(base=BASE, child='about = ""\nextends = "base"\ndialect = "responses"')
    with pytest.raises(
        ProfileError, match="child, line 3: dialect: expected 'chat', the dialect of 'base', got 'responses'"
    ):
        find("child")


def test_error_in_a_parent_profile_names_both_files() -> None:
    find = profiles(base=BASE + 'sytem = "first"', child='about = ""\nextends = "base"')
    with pytest.raises(
        ProfileError, match=r"child, line 2: extends 'base': base, line 8: wire\.sytem: unknown setting"
    ):
        find("child")


@settings(max_examples=40)
@given(
    names=st.lists(st.sampled_from(sorted(set(QUIRKS) - {"only_items"})), max_size=6),
    comments=st.lists(st.sampled_from(["", "# quirks = [", '# "', "#]"]), min_size=7, max_size=7),
    wrong=st.sampled_from(["nope", "dropreasoning"]),
)
def test_profile_error_line_is_right_at_any_position(names: list[str], comments: list[str], wrong: str) -> None:
    lines = ['about = """', "several # lines", '"""', 'dialect = "chat"', "quirks = ["]
    lines += [f'  "{name}", {comment}' for name, comment in zip(names, comments, strict=False)]
    lines += [f'"{wrong}"', "]", "[wire]", 'system = "first"']
    with pytest.raises(ProfileError, match=f"x, line {6 + len(names)}: quirks: unknown quirk '{wrong}'"):
        parse_profile("\n".join(lines), "x")


@pytest.mark.parametrize(
    ("text", "accepts_images"),
    [
        ('dialect = "chat"', True),
        ('dialect = "gemini"', True),
        ('dialect = "chat"\nquirks = ["images_as_notes"]', False),
        ('dialect = "responses"\nquirks = ["media_as_notes"]', False),
        ('dialect = "messages"\n[wire]\nimages = false', False),
    ],
)
def test_profile_accepts_images_unless_a_quirk_or_a_wire_option_replaces_them(text: str, accepts_images: bool) -> None:
    assert parse_profile(f'about = "x"\n{text}', "x").accepts_images is accepts_images


@pytest.mark.parametrize(
    ("text", "thinking_models"),
    [
        ('dialect = "chat"', ["large", "small"]),
        ('dialect = "chat"\n[wire]\nfields = ["seed"]', []),
        ('dialect = "responses"\n[wire]\nno_reasoning_models = ["sm*"]', ["large"]),
        ('dialect = "responses"\n[wire]\nlacks = ["reasoning"]', []),
        ('dialect = "messages"\n[wire]\nthinking = "none"', []),
        ('dialect = "messages"\n[[wire.models]]\nnames = ["small"]\nthinking = ["disabled"]', ["large"]),
        ('dialect = "gemini"\n[wire]\nunthinking_models = ["small"]', ["large"]),
        ('dialect = "gemini"\n[wire]\nthinking = "none"', []),
        ('dialect = "ollama"', ["large", "small"]),
        ('dialect = "ollama"\n[wire]\nthinking = false', []),
    ],
)
def test_wire_options_say_which_models_can_be_asked_for_reasoning(text: str, thinking_models: list[str]) -> None:
    wire = parse_profile(f'about = "x"\n{text}', "x").wire
    assert [model for model in ("large", "small") if wire.can_think(model)] == thinking_models
