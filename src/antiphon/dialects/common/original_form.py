"""Keeps the form of a client's request for a server of the same dialect, wherever the translation means the same.

The translation of a request within one dialect changes what the profile, the policy or the repair of the history
demand, and also what the hub has no place for: nulls, unknown members, two spellings of one thing. Each value of the
client that reads the same as its translation replaces it. So the server gets the client's own JSON except where the
gateway has a reason to change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, CACHE_MARK
from antiphon.dialects.common.request_meaning import meaning_of
from antiphon.errors import ApiError
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

Json = Any
ReadBody = Callable[[bytes], tuple[Request, Losses]]


def keep_original_form(
    original: bytes,
    translation: bytes,
    read_body: ReadBody,
    translate_neutrally: Callable[[], bytes] | None = None,
    *,
    keeps_turns: bool = False,
) -> bytes:
    """The translation of a request, with the client's own value wherever it reads the same.

    `translate_neutrally` is the translation for a server without a profile: where it differs, the profile states a
    form, and the client's is not kept. With `keeps_turns` the client's messages stay that the translation joined.
    """
    client_body, server_body = decode_json(original), decode_json(translation)
    if not isinstance(client_body, dict):
        return translation
    if _may_have_cache_marks(original) and not any(name.encode() in translation for name in CACHE_MARKS):
        client_body = _without_cache_marks(client_body)
    if client_body == server_body:
        return msgspec.json.encode(client_body)  # in the client's order, as in every other turn (E-4)
    if any(name in server_body and name not in client_body for name in CONVERSATION_MEMBERS):
        return translation  # a request of another endpoint, which has another form
    differs = any(client_body.get(name, value) != value for name, value in server_body.items() if type(value) is list)
    neutral_body = _decode_or_empty(translate_neutrally) if translate_neutrally is not None and differs else server_body
    merger = _Merger(read_body, len(original) + len(translation), keeps_turns=keeps_turns)
    return msgspec.json.encode(merger.merge_bodies(client_body, server_body, neutral_body))


def _decode_or_empty(translate: Callable[[], bytes]) -> dict[str, Json]:
    try:
        return dict(decode_json(translate()))
    except ApiError:
        return {}  # only the profile makes the translation possible


def without_restored_losses(losses: Losses, original: bytes, sent: bytes) -> Losses:
    """The losses without those of members that are sent after all."""
    client_body, server_body = decode_json(original), decode_json(sent)
    remaining = Losses()
    for loss in losses:
        value = _value_at(loss.path, client_body)
        if value is ABSENT or value != _value_at(loss.path, server_body):
            remaining.add(loss.path, loss.what, loss.why)
    return remaining


def _may_have_cache_marks(body: bytes) -> bool:
    """Whether a body has the name of a cache mark, or an escape that may spell one."""
    return b"\\u" in body or any(name.encode() in body for name in CACHE_MARKS)


def _without_cache_marks(value: Json) -> Json:
    """The value without cache marks, which the server does not take. A message that has one then keeps its form, as it
    does in the next turn, in which another message has the mark.
    """
    match value:
        case dict():
            kept = {name: member for name, member in value.items() if name not in CACHE_MARKS or member is None}
            return {name: _without_cache_marks(member) for name, member in kept.items()}
        case list():
            return [_without_cache_marks(member) for member in value]
        case _:
            return value


def _value_at(path: str, value: Json) -> Json:
    for name, index in PATH_STEP.findall(path):
        if name and isinstance(value, dict) and name in value:
            value = value[name]
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return ABSENT
    return value


class _Merger:
    """Merges one request. What it reads to compare values is bounded by the size of the request."""

    def __init__(self, read_body: ReadBody, size: int, *, keeps_turns: bool) -> None:
        self._read_body = read_body
        self._keeps_turns = keeps_turns
        self._remaining_bytes = MAX_READ_FACTOR * size + MIN_READ_BYTES
        self._remaining_readings = MAX_READINGS
        self._neutral_elements: dict[int, Json] = {}  # by the identity of the element of the translation

    def merge_bodies(
        self, client_body: dict[str, Json], server_body: dict[str, Json], neutral_body: dict[str, Json]
    ) -> dict[str, Json]:
        # Members are read beside the first element of each list, so that the others are not read again and again.
        context = {name: value[:1] if isinstance(value, list) else value for name, value in server_body.items()}
        allowed = {
            name: self._with_stated_forms(client_body[name], value, neutral_body.get(name))
            for name, value in server_body.items()
            if name in client_body and type(value) is list
        }
        return self._merge_members({**client_body, **allowed}, server_body, context, self._read)

    def _with_stated_forms(self, client_value: Json, server_list: list[Json], neutral_value: Json) -> Json:
        """The client's list, with the forms that the profile states."""
        if neutral_value == server_list:
            return client_value
        if not isinstance(neutral_value, list) or len(neutral_value) != len(server_list):
            return server_list
        self._neutral_elements.update(zip(map(id, server_list), neutral_value, strict=True))
        if not isinstance(client_value, list) or len(client_value) != len(server_list):
            return client_value
        return [self._with_stated_form(own, value) for own, value in zip(client_value, server_list, strict=True)]

    def _states_forms(self, client_value: Json, server_value: Json) -> bool:
        """Whether the profile states forms in a list that the client's list does not have yet."""
        if not isinstance(server_value, list):
            return False
        if isinstance(client_value, list) and len(client_value) == len(server_value):
            return False
        return any(self._neutral_elements.get(id(element), element) != element for element in server_value)

    def _merge_values(self, client_value: Json, server_value: Json, read: _Read) -> Json:
        if client_value == server_value:
            return client_value
        if not self._states_forms(client_value, server_value) and self._read_same(client_value, server_value, read):
            return _with_words_of(server_value, client_value)
        if isinstance(client_value, dict) and isinstance(server_value, dict):
            if "type" in client_value and client_value["type"] != server_value.get("type", client_value["type"]):
                return server_value  # another object in its place, such as a note in place of an image
            return self._merge_members(client_value, server_value, server_value, read)
        if isinstance(client_value, list) and isinstance(server_value, list):
            return self._merge_elements(client_value, server_value, read)
        return server_value

    def _merge_members(
        self, client_value: dict[str, Json], server_value: dict[str, Json], context: dict[str, Json], read: _Read
    ) -> dict[str, Json]:
        """Merges objects. `read` reads `context` with one member replaced."""
        spellings = {_fold_name(name): name for name in client_value}
        merged: dict[str, Json] = {}
        for name, value in server_value.items():
            own_name = name if name in client_value else spellings.get(_fold_name(name), name)
            others = {other: other_value for other, other_value in context.items() if other != name}
            read_member = partial(_read_member, read, others, own_name)
            own_value = client_value.get(own_name, value)
            merged[own_name] = self._merge_values(own_value, value, read_member)
        left_out = {name: value for name, value in client_value.items() if name not in merged}
        if left_out:
            # Members that the translation added may be other names of members that it left out.
            context = {name: value for name, value in context.items() if name in client_value}
            merged.update(self._meaningless_members(left_out, context, read))
        in_order = {name: merged[name] for name in client_value if name in merged}
        return in_order | merged

    def _meaningless_members(
        self, members: dict[str, Json], context: dict[str, Json], read: _Read
    ) -> Iterator[tuple[str, Json]]:
        """The members that mean nothing to the hub, such as nulls and unknown members."""
        if self._read_same({**context, **members}, context, read):
            yield from members.items()
            return
        for name, value in members.items():
            if self._read_same({**context, name: value}, context, read):
                yield name, value

    def _merge_elements(self, client_list: list[Json], server_list: list[Json], read: _Read) -> list[Json]:
        read_element = partial(_read_element, read)
        if len(client_list) == len(server_list):
            pairs = zip(client_list, server_list, strict=True)
            return [self._merge_values(client_value, value, read_element) for client_value, value in pairs]
        merged: list[Json] = []
        start = 0
        for position, value in enumerate(server_list):
            first, end = self._find_source(client_list, start, server_list[position:], read)
            if end == first + 1:
                own_value = self._with_stated_form(client_list[first], value)
                merged.append(self._merge_values(own_value, value, read_element))
            else:
                merged += client_list[first:end] or [value]
            start = end
        return merged

    def _find_source(
        self, client_list: list[Json], start: int, server_list: list[Json], read: _Read
    ) -> tuple[int, int]:
        """The start and the end of the client's elements that became the first element of the translation. There are
        several if the translation joined them, and none if it added the element."""
        value = server_list[0]
        most = MAX_LOOKAHEAD if self._keeps_turns else 1
        for first in range(start, min(start + MAX_LOOKAHEAD, len(client_list))):
            for end in range(first + 1, min(first + most, len(client_list)) + 1):
                if not self._may_become(client_list[end - 1], value):
                    break
                if self._reads_as(client_list[first:end], value, read):
                    return first, end
        if start == len(client_list) or not self._may_become(client_list[start], value):
            return start, start
        later = server_list[1:MAX_LOOKAHEAD]
        is_added = any(self._reads_as(client_list[start : start + 1], other, read) for other in later)
        return (start, start) if is_added else (start, start + 1)

    def _may_become(self, client_value: Json, value: Json) -> bool:
        """Whether an element of the translation may be made of the client's: it has its role, and its type before the
        profile changes it."""
        neutral_value = self._neutral_elements.get(id(value), value)
        return _is_same_role(client_value, value) and _is_same_type(client_value, neutral_value)

    def _reads_as(self, client_values: list[Json], value: Json, read: _Read) -> bool:
        own_values = [self._with_stated_form(each, value) for each in client_values]
        return own_values == [value] or self._read_same(own_values, [value], read)

    def _with_stated_form(self, client_value: Json, server_value: Json) -> Json:
        neutral_value = self._neutral_elements.get(id(server_value), server_value)
        return _with_stated_form(client_value, server_value, neutral_value)

    def _read_same(self, left: Json, right: Json, read: _Read) -> bool:
        left_meaning = read(left)
        return left_meaning is not None and left_meaning == read(right)

    def _read(self, body: Json) -> Json:
        """What a body means; None if it cannot be read, or if too much was read already."""
        encoded_body = msgspec.json.encode(body)
        self._remaining_bytes -= len(encoded_body)
        self._remaining_readings -= 1
        if self._remaining_bytes < 0 or self._remaining_readings < 0:
            return None
        try:
            return meaning_of(self._read_body(encoded_body)[0], joins_messages=self._keeps_turns)
        except ApiError:
            return None


def _with_stated_form(client_value: Json, server_value: Json, neutral_value: Json) -> Json:
    """The client's value, with what differs between the neutral translation and the translation for the profile."""
    if server_value == neutral_value or _fold_names(client_value) == _fold_names(server_value):
        return client_value
    match client_value, server_value, neutral_value:
        case dict(), dict(), dict():
            changed = [
                name
                for name in {**neutral_value, **server_value}
                if server_value.get(name, ABSENT) != neutral_value.get(name, ABSENT)
            ]
            stated = dict(client_value)
            for name in changed:
                stated[name] = _with_stated_form(
                    client_value.get(name, ABSENT), server_value.get(name, ABSENT), neutral_value.get(name, ABSENT)
                )
            return {name: value for name, value in stated.items() if value is not ABSENT}
        case list(), list(), list() if len(client_value) == len(server_value) == len(neutral_value):
            triples = zip(client_value, server_value, neutral_value, strict=True)
            return [_with_stated_form(*triple) for triple in triples]
        case _:
            return server_value


def _fold_names(value: Json) -> Json:
    """The value with one spelling of each name."""
    match value:
        case dict():
            return {_fold_name(name): _fold_names(member) for name, member in value.items()}
        case list():
            return [_fold_names(member) for member in value]
        case _:
            return value


def _is_same_role(client_value: Json, server_value: Json) -> bool:
    """Whether both are objects of one role, so that one may have become the other."""
    match client_value, server_value:
        case dict(), dict():
            return bool(client_value.get("role") == server_value.get("role"))
        case _:
            return False


def _is_same_type(client_value: dict[str, Json], value: Json) -> bool:
    """Whether two objects have the same type, or one has none."""
    return not isinstance(value, dict) or client_value.get("type") in (None, value.get("type"))


def _with_words_of(server_value: Json, client_value: Json) -> Json:
    """The client's value with the words of the translation, where both have one in the same place. Servers know only
    one of two words with the same meaning, such as `any` and `required`."""
    match client_value, server_value:
        case dict(), {"type": "function" | "custom"} if "type" not in client_value:
            return server_value  # servers need the type of a tool or a call
        case dict(), dict():
            server_members = {_fold_name(name): value for name, value in server_value.items()}
            return {
                name: _with_words_of(server_members.get(_fold_name(name), value), value)
                for name, value in client_value.items()
            }
        case list(), list() if len(client_value) == len(server_value):
            pairs = zip(server_value, client_value, strict=True)
            return [_with_words_of(server_member, member) for server_member, member in pairs]
        case str(), str() if min(len(client_value), len(server_value)) <= MAX_WORD:
            return client_value if MEDIA_TYPE.fullmatch(client_value) else server_value
        case _:
            return client_value


#: Reads a value in its place: as the value of one member, or as the only element of a list.
_Read = Callable[[Json], Json]


def _read_member(read: _Read, others: dict[str, Json], name: str, value: Json) -> Json:
    return read({**others, name: value})


def _read_element(read: _Read, value: Json) -> Json:
    return read([value])


def _fold_name(name: str) -> str:
    """One form for both spellings of a name: `systemInstruction` and `system_instruction`."""
    return name.replace("_", "").lower()


ABSENT: Final = object()
CACHE_MARKS: Final = (CACHE_CONTROL, CACHE_MARK)
#: The member with the conversation, in every dialect.
CONVERSATION_MEMBERS: Final = ("messages", "contents", "input")
PATH_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
#: The translation guesses the media type of an address; the client knows it.
MEDIA_TYPE: Final = re.compile(r"(?:application|audio|image|text|video)/[a-zA-Z0-9.+*-]{1,64}")
MAX_READ_FACTOR: Final = 3  # bytes that are read for each byte of a request and its translation
MIN_READ_BYTES: Final = 64 * 1024
MAX_READINGS: Final = 400
MAX_LOOKAHEAD: Final = 8  # client's elements that one element of the translation is compared with
MAX_WORD: Final = 64  # characters; a longer text, such as an image in base64, is no word with two spellings
