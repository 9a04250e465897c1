"""Remembers which target answered a conversation, because its prompt cache is warm there. It only reorders targets.

Entries live as long as the cache of the provider, per process; what is stored with a response holds for all processes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from msgspec import Struct

from antiphon.gateway.routing.attempts import ModelRoute, RouteTarget
from antiphon.gateway.routing.facts import RequestFacts


class Session(Struct, frozen=True, kw_only=True):
    """What identifies the conversation of a turn, for one owner and model."""

    owner: str
    model: str
    previous_response_id: str | None = None
    conversation_id: str | None = None
    header: str | None = None  # the session of an agent
    prompt_cache_key: str | None = None
    opening: str = ""

    @property
    def key(self) -> bytes:
        """The key of the strongest identification."""
        if self.previous_response_id:
            return self.response_key(self.previous_response_id)
        named = (("conversation", self.conversation_id), ("header", self.header), ("cache", self.prompt_cache_key))
        source, value = next(((source, value) for source, value in named if value), ("opening", self.opening))
        return self._hash(source, value or "")

    def response_key(self, id: str) -> bytes:
        return self._hash("response", id)

    def _hash(self, source: str, value: str) -> bytes:
        text = "\0".join((self.owner, self.model, source, value))
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def make_session(
    owner: str, model: str, previous_response_id: str | None, facts: RequestFacts, header: str | None
) -> Session:
    return Session(
        owner=owner,
        model=model,
        previous_response_id=previous_response_id,
        conversation_id=facts.conversation_id,
        header=header,
        prompt_cache_key=facts.prompt_cache_key,
        opening=facts.opening,
    )


class StickyTargets:
    """The targets of conversations, at most `MAX_SESSIONS`; the oldest is evicted."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, tuple[str, float]] = {}

    def find(self, key: bytes, now: float) -> str | None:
        """The label of the target that answered last."""
        entry = self._by_key.get(key)
        if entry is None or now >= entry[1]:
            self._by_key.pop(key, None)
            return None
        return entry[0]

    def remember(self, key: bytes, label: str, seconds: float, now: float) -> None:
        self._by_key.pop(key, None)
        if len(self._by_key) >= MAX_SESSIONS:
            del self._by_key[next(iter(self._by_key))]
        self._by_key[key] = (label, now + seconds)


def cache_seconds(target: RouteTarget, facts: RequestFacts) -> float:
    """How long the prompt cache of a target lives."""
    return facts.cache_seconds or target.target.upstream.server_dialect.prompt_cache_seconds


def target_with_label(route: ModelRoute, label: str | None) -> RouteTarget | None:
    return next((target for target in route.targets if target.label == label), None) if label else None


MAX_SESSIONS: Final = 10_000
