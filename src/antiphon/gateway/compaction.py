"""The contents of a compaction, and how a compaction replaces part of a conversation. Pure, except for the seal.

A compaction holds a summary and these items verbatim: system and developer messages, tools, the last user message,
earlier user messages and the newest steps if they fit, and calls without outputs. It also has the fingerprints of all
items that it covers. Covered items before it are dropped when it is opened; all others stay.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import replace

from antiphon.dialects.common.placeholders import placeholder_for
from antiphon.dialects.common.token_estimate import estimate_items
from antiphon.errors import ClientFault
from antiphon.gateway.conversation_steps import (
    CALLS,
    OUTPUTS,
    is_permanent,
    is_summary,
    is_user_message,
    last_user_index,
    split_steps,
    summary_message,
)
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.sealing import Seal, has_seal_mark
from antiphon.protocol import codec
from antiphon.protocol.base import Unknown
from antiphon.protocol.content import (
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    Refusal,
)
from antiphon.protocol.items import CompactionParam, CompactionTrigger, ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.request import Request


class Conversation(Struct, frozen=True, kw_only=True):
    """A conversation that is compacted."""

    request: Request  # its compactions are open
    sealed_items: list[ItemParam]  # the same conversation with its compactions sealed


class EncodedConversation(Struct, frozen=True, kw_only=True):
    """A large conversation as JSON, which only worker processes decode."""

    request: bytes
    sealed_items: bytes

    @property
    def size(self) -> int:
        return len(self.request) + len(self.sealed_items)


def encode_conversation(conversation: Conversation | EncodedConversation) -> EncodedConversation:
    """The conversation as JSON, for a worker process."""
    if isinstance(conversation, EncodedConversation):
        return conversation
    return EncodedConversation(
        request=codec.encode(conversation.request), sealed_items=codec.encode(conversation.sealed_items)
    )


def decode_conversation(conversation: Conversation | EncodedConversation) -> Conversation:
    """The conversation, decoded if it is encoded."""
    if isinstance(conversation, Conversation):
        return conversation
    return Conversation(
        request=codec.decode_stored_request(conversation.request),
        sealed_items=codec.decode_stored(conversation.sealed_items, list[ItemParam]),
    )


class CompactionContents(Struct, frozen=True, kw_only=True):
    """The contents before sealing."""

    summary: str
    permanent_items: list[ItemParam]  # system and developer messages, tools
    verbatim_items: list[ItemParam]  # items after the summary
    covered_fingerprints: frozenset[bytes]  # of all items that it replaces

    def items(self) -> list[ItemParam]:
        """The items that replace the covered ones."""
        return [*self.permanent_items, summary_message(self.summary), *self.verbatim_items]


def encode_contents_without_summary(
    permanent_items: list[ItemParam], verbatim_items: list[ItemParam], covered_fingerprints: frozenset[bytes]
) -> bytes:
    """The contents of a compaction before its summary is known, as a JSON object."""
    covered = b64encode(b"".join(sorted(covered_fingerprints))).decode()
    return codec.encode({"standing": permanent_items, "kept": verbatim_items, "covered": covered})


def add_summary(contents: bytes, summary: str) -> bytes:
    """The whole contents."""
    return b'{"summary":%b,%b' % (codec.encode(summary), contents[1:])


class CompactionOpener(Struct, frozen=True, kw_only=True):
    """Opens the compactions of one request."""

    seal: Seal
    owner: str
    keeps_foreign: bool = False  # pass compactions of other servers on to the upstream
    contents_cache: dict[str, CompactionContents] = field(default_factory=dict)  # each is opened and counted once

    def open(self, item: CompactionParam, path: str) -> bytes | None:
        """The contents as JSON; None for a compaction of another server, which is passed on unchanged."""
        if not has_seal_mark(item.encrypted_content):
            if self.keeps_foreign:
                return None
            raise _invalid_compaction(
                path, "it was not created by this gateway, and the requested model cannot read it"
            )
        content = self.seal.decrypt(self.owner, item.encrypted_content)
        if content is None:
            raise _invalid_compaction(path, "it is damaged, or was not created by this gateway for this key")
        return content


def open_compactions(
    items: list[ItemParam], opener: CompactionOpener, path_of: Callable[[int], str], budget: HistoryBudget
) -> list[ItemParam]:
    """The conversation with its compactions replaced by their contents. Opens the newest first, since items that it
    covers need no opening. Drops triggers that were answered. Counts contents against the budget before decoding them.
    """
    permanent_groups: list[list[ItemParam]] = []
    later_groups: list[list[ItemParam]] = []
    indexed_items = [(index, item) for index, item in enumerate(items) if type(item) is not CompactionTrigger]
    fingerprints: dict[int, bytes] = {}
    position = len(indexed_items)
    while (position := position - 1) >= 0:
        index, item = indexed_items[position]
        if not isinstance(item, CompactionParam):
            continue
        contents = opener.contents_cache.get(item.encrypted_content)
        if contents is None:
            content, path = opener.open(item, path_of(index)), path_of(index)
            if content is None:
                continue
            if not budget.take(len(content), path, "the compaction"):
                # Drop everything older; if that is not enough, drop the compaction too.
                newer_items = [other_item for _, other_item in indexed_items[position + 1 :]] + [
                    other_item for part in later_groups for other_item in part
                ]
                budget.restart(len(codec.encode(newer_items)))
                indexed_items, position = indexed_items[position:], 0
                if not budget.take(len(content), path, "the compaction"):
                    budget.drop(path, "the compaction, and everything before it")
                    indexed_items = indexed_items[1:]
                    break
                budget.drop(path, "everything before the compaction")
            contents = opener.contents_cache[item.encrypted_content] = decode_contents(content)
        for earlier_index, other_item in indexed_items[:position]:
            fingerprints[earlier_index] = fingerprints.get(earlier_index) or fingerprint(other_item)
        later_groups.append(
            [
                summary_message(contents.summary),
                *contents.verbatim_items,
                *(other_item for _, other_item in indexed_items[position + 1 :]),
            ]
        )
        permanent_groups.append(contents.permanent_items)
        covered = contents.covered_fingerprints | {fingerprint(item)}
        indexed_items = [
            entry
            for entry in indexed_items[:position]
            if fingerprints[entry[0]] not in covered and not isinstance(entry[1], ReasoningParam)
        ]
        position = len(indexed_items)
    conversation = [item for part in reversed(permanent_groups) for item in part]
    conversation += [item for _, item in indexed_items]
    return conversation + [item for part in reversed(later_groups) for item in part]


def verbatim_token_limit(context_size: int | None, compaction_threshold: int | None) -> int:
    """How many tokens are kept verbatim."""
    return quarter_of_smallest(MAX_VERBATIM_TOKENS, context_size, compaction_threshold)


def quarter_of_smallest(maximum: int, *sizes: int | None) -> int:
    return min([maximum, *(size // 4 for size in sizes if size is not None)])


def select_verbatim_items(items: list[ItemParam], token_limit: int) -> tuple[list[ItemParam], list[ItemParam]]:
    """The permanent items of a conversation, and the items to keep verbatim in about `token_limit` tokens: half for
    earlier user messages, half for the newest steps. The last user message and calls without outputs are always kept.
    """
    permanent_by_fingerprint = {fingerprint(item): item for item in items if is_permanent(item)}
    turn_items = [item for item in items if not is_permanent(item) and not is_summary(item)]
    last_user_message_index = last_user_index(turn_items)
    start_index = 0 if last_user_message_index is None else last_user_message_index + 1
    verbatim = _newest_user_messages(
        [item for item in turn_items[:start_index] if is_user_message(item)], token_limit // 2
    ) + _newest_steps(turn_items, start_index, token_limit // 2)
    permanent = list(permanent_by_fingerprint.values())
    if len(codec.encode([*permanent, *verbatim])) > MAX_VERBATIM_BYTES:
        permanent, verbatim = list(map(_without_media, permanent)), list(map(_without_media, verbatim))
    return permanent, verbatim


def fingerprint(item: ItemParam) -> bytes:
    """A hash that identifies an item regardless of its id or of the form of its content (parts or a string)."""
    match item:
        case MessageParam():
            identity: Any = [
                "message",
                item.role,
                item.content if isinstance(item.content, str) else _canonical_content(item.content),
            ]
        case _ if isinstance(item, CALLS):
            identity = ["call", item.call_id]
        case _ if isinstance(item, OUTPUTS):
            identity = ["output", item.call_id]
        case CompactionParam():
            identity = ["compaction", item.encrypted_content]
        case Unknown():
            identity = [
                item.kind,
                {name: raw for name, raw in item.raw_members().items() if name not in SERVER_ASSIGNED_MEMBERS},
            ]
        case _:
            identity = replace(
                item, **{name: UNSET for name in SERVER_ASSIGNED_MEMBERS if name in item.__struct_fields__}
            )
    return sha256(codec.encode(identity)).digest()[:FINGERPRINT_BYTES]


def _newest_user_messages(user_messages: list[ItemParam], token_limit: int) -> list[ItemParam]:
    newest: list[ItemParam] = []
    for item in reversed(user_messages):
        token_limit -= estimate_items([item])
        if token_limit < 0 and newest:
            break
        newest.insert(0, item)
    return newest


def _newest_steps(items: list[ItemParam], start_index: int, token_limit: int) -> list[ItemParam]:
    kept_indexes: set[int] = set()
    is_full = False
    for step in reversed(split_steps(items)):
        tokens = estimate_items(items[index] for index in step.indexes)
        is_full = is_full or step.indexes[0] < start_index or tokens > token_limit
        if not is_full or step.open_calls:
            kept_indexes.update(step.indexes)
            token_limit -= tokens
    return [item for index, item in enumerate(items) if index in kept_indexes]


def _without_media(item: ItemParam) -> ItemParam:
    """Replaces media with placeholders, for items that are too large."""
    for name in ("content", "output"):
        parts = getattr(item, name, None)
        if isinstance(parts, list) and any(isinstance(part, MEDIA) for part in parts):
            replaced_parts = [
                InputText(text=placeholder_for(part)) if isinstance(part, MEDIA) else part for part in parts
            ]
            return replace(item, **{name: replaced_parts})
    return item


def _canonical_content(content: list[Any]) -> Any:
    """Content in one canonical form: text parts as strings, a single text as a string."""
    texts = [_canonical_part(part) for part in content]
    return texts[0] if len(texts) == 1 else texts


def _canonical_part(part: Any) -> Any:
    if isinstance(part, Refusal):
        return part.refusal
    if isinstance(part, InputImageParam | InputFileParam):  # absent, null and default values are the same
        return replace(
            part, **{name: UNSET for name in part.__struct_fields__ if getattr(part, name) in DEFAULT_MEDIA_VALUES}
        )
    text = getattr(part, "text", None)
    return text if isinstance(text, str) else part


def decode_contents(content: bytes) -> CompactionContents:
    """The contents of a compaction from their JSON."""
    sealed = msgspec.json.decode(content, type=_SealedContents)
    covered = b64decode(sealed.covered)
    return CompactionContents(
        summary=sealed.summary,
        permanent_items=codec.decode_stored(sealed.permanent, list[ItemParam]),
        verbatim_items=codec.decode_stored(sealed.verbatim, list[ItemParam]),
        covered_fingerprints=frozenset(
            covered[position : position + FINGERPRINT_BYTES] for position in range(0, len(covered), FINGERPRINT_BYTES)
        ),
    )


class _SealedContents(Struct, frozen=True):
    summary: str
    permanent: Raw = field(name="standing")
    verbatim: Raw = field(name="kept")
    covered: str


def _invalid_compaction(path: str, reason: str) -> ClientFault:
    return ClientFault(f"{path}: this compaction cannot be used: {reason}", code="invalid_compaction", param=path)


SERVER_ASSIGNED_MEMBERS: Final = ("id", "status", "created_by")
DEFAULT_MEDIA_VALUES: Final = (None, "auto")
MEDIA: Final = (InputImageParam, InputFileParam, InputVideo, InputAudio)
FINGERPRINT_BYTES: Final = 8
# The sealed form is a third larger, and may have ten million characters.
MAX_VERBATIM_BYTES: Final = 4 * 1024 * 1024
MAX_VERBATIM_TOKENS: Final = 16_000  # tokens kept verbatim at most
MIN_SUMMARY_TOKENS: Final = 256
