"""ERR-5: keys, tracebacks and internal addresses are removed from text, wherever it is truncated."""

from __future__ import annotations

import pytest

from antiphon.redaction import MAX_MESSAGE_LENGTH, mask_keys, sanitize_text

KEYS = [
    "sk-proj-abcDEF123456",
    "sk-ant-api03-" + "x" * 20,
    "gsk_0123456789abcdef",
    "AIzaSyA" + "b" * 20,
    "AKIAIOSFODNN7EXAMPLE",
    "hf_abcdefghij",
    "eyJhbGciOi.eyJzdWIiOi.SflKxwRJ",
    "eyJhbGciOi.OKOawDo13g.48V1_ALb6U.XFBoMYUZod.Fiy2WBs1QQ",
]


@pytest.mark.parametrize(
    "text",
    ["Authorization: Basic dXNlcjpwYXNz", '"authorization": "Basic dXNlcjpwYXNz"', "authorization=basic dXNlcjpwYXNz"],
)
def test_mask_keys_masks_basic_credentials(text: str) -> None:
    assert "dXNlcjpwYXNz" not in mask_keys(text)


def test_mask_keys_leaves_words_after_basic() -> None:
    assert mask_keys("basic understanding of authorization: none") == "basic understanding of authorization: none"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "frame", ["{}", "bad key {}", "Authorization: Bearer {}", '{{"api_key": "{}"}}', "(see {}, please)"]
)
def test_keys_are_masked_at_any_position(key: str, frame: str) -> None:
    """ERR-5"""
    masked = mask_keys(frame.format(key))
    assert key not in masked
    assert "[key]" in masked


@pytest.mark.parametrize("text", ["Bearer s3cr3t-value", "x-api-key: abcdef0", "Incorrect API key provided: abc12345"])
def test_value_named_key_is_masked_in_any_form(text: str) -> None:
    """ERR-5"""
    assert mask_keys(text).endswith("[key]")


@pytest.mark.parametrize(
    "text", ["the key is missing", "resp_0123456789abcdef was not found", "tokens: 12345678", "a sketchy-looking name"]
)
def test_ordinary_words_are_not_masked(text: str) -> None:
    assert mask_keys(text) == text


def test_tracebacks_and_internal_addresses_are_removed() -> None:
    """ERR-5"""
    text = "no answer from http://10.0.0.7:8000/v1 or localhost:11434\nTraceback (most recent call last):\n  File x"
    assert sanitize_text(text) == "no answer from [address] or [address]\n"
    assert sanitize_text("see https://example.org/limits") == "see https://example.org/limits"


@pytest.mark.parametrize(
    "address", ["[::1]", "[::]", "[fe80::1]", "[2001:db8::]", "[2001:db8:0:1::7:8]", "http://[::1]:8080/v1"]
)
def test_internal_ipv6_addresses_are_removed(address: str) -> None:
    """ERR-5"""
    assert sanitize_text(f"no answer from {address}.") in ("no answer from [address].", "no answer from [address]")


@pytest.mark.parametrize("text", ["at [12:34] o'clock", "x[0:7]", "[:::", "[a:b::c"])
def test_other_brackets_are_kept(text: str) -> None:
    assert sanitize_text(text) == text


def test_surrogates_in_messages_are_joined_or_replaced() -> None:
    """ERR-1: the message must be UTF-8."""
    assert sanitize_text("no \ud83d\ude00 \ud800 é") == "no \U0001f600 \ufffd é"


def test_long_messages_are_truncated() -> None:
    assert len(sanitize_text("x " * 50_000)) == 1001


NAMED_FRAMES = [("Authorization: Bearer ", ""), ('{"api_key": "', '"}'), ("password=", "")]
UNNAMED_FRAMES = [("", ""), ("bad key ", ""), ("(see ", ", please)")]
KEYS_IN_FRAMES = [
    *((key, frame) for key in KEYS for frame in [*NAMED_FRAMES, *UNNAMED_FRAMES]),
    *((secret, frame) for secret in ("s3cr3t/with+other=characters", "пароль/пароль") for frame in NAMED_FRAMES),
]


@pytest.mark.parametrize(("key", "frame"), KEYS_IN_FRAMES)
@pytest.mark.parametrize("max_length", [512, 4_000])
def test_key_split_by_truncation_is_masked_at_every_offset(max_length: int, key: str, frame: tuple[str, str]) -> None:
    """ERR-5: for any remaining length."""
    before, after = frame
    for remaining_length in range(1, len(key) + 1):
        head = ("· " * max_length)[: max_length - remaining_length - len(before)] + before
        masked = mask_keys(head + key + after + " ·" * 20, max_length)
        assert masked == head + "[key]…"
        assert len(masked) <= max_length + len("[key]…")


def test_word_split_by_truncation_is_masked() -> None:
    assert mask_keys("/v1/responses/" + "x" * 600, 512) == "/v1/responses/[key]…"
    assert mask_keys("one two three", 9) == "one two [key]…"
    assert mask_keys("one two three", 13) == "one two three"


@pytest.mark.parametrize(("length", "end"), [(MAX_MESSAGE_LENGTH, "."), (MAX_MESSAGE_LENGTH + 1, "…")])
def test_message_of_the_longest_length_is_not_cut(length: int, end: str) -> None:
    text = "." * length
    assert sanitize_text(text) == "." * MAX_MESSAGE_LENGTH + end.removeprefix(".")
