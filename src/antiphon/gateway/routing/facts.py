"""The facts of a request that decide which targets can serve it, and where its prompt may be cached. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import requested_lifetimes
from antiphon.dialects.common.envelope import client_maker, unseal_reasoning
from antiphon.dialects.common.token_estimate import estimate_request
from antiphon.errors import ClientFault
from antiphon.gateway.upstreams import Target
from antiphon.protocol import codec
from antiphon.protocol.content import InputImageParam
from antiphon.protocol.items import ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.request import JsonSchemaFormatParam, Request, conversation_id_of, input_items


class RequestFacts(Struct, frozen=True, kw_only=True):
    """What a request needs, and what identifies its conversation."""

    has_images: bool = False
    has_tools: bool = False
    has_schema: bool = False  # for the output
    maker: str | None = None  # of the newest sealed reasoning in the history
    tokens: int = 0  # an estimate
    opening: str = ""  # a hash of the beginning of the conversation
    prompt_cache_key: str | None = None
    conversation_id: str | None = None
    cache_seconds: float | None = None  # for which the client wants its prompt to be cached


def facts_of(request: Request) -> RequestFacts:
    """The facts of a request, without the history that it refers to."""
    items = input_items(request)
    return RequestFacts(
        has_images=any(map(_has_image, items)),
        has_tools=bool(request.tools),
        has_schema=isinstance(getattr(request.text, "format", None), JsonSchemaFormatParam),
        maker=next(filter(None, map(_maker_of, reversed(items))), None),
        tokens=estimate_request(request),
        opening=_hash_opening(request, items),
        prompt_cache_key=request.prompt_cache_key or None,
        conversation_id=_conversation_id(request),
        cache_seconds=_cache_seconds(request),
    )


def with_history(facts: RequestFacts, conversation: Request) -> RequestFacts:
    """The facts of a request whose whole conversation is known. What identifies the conversation stays."""
    whole = facts_of(conversation)
    return replace(whole, opening=facts.opening, conversation_id=facts.conversation_id)


def depends_on_history(targets: Iterable[Target]) -> bool:
    """Whether the targets differ in what they can carry of an earlier conversation."""
    return len(set(map(_abilities, targets))) > 1


def _abilities(target: Target) -> tuple[str, str, bool, int | None]:
    profile = target.upstream.profile
    context_size = target.upstream.config.context_size(target.model)
    return profile.dialect, profile.wire.maker, profile.accepts_images, context_size


def find_obstacle(target: Target, facts: RequestFacts) -> str:
    """Why a target cannot carry all of a request; empty if it can."""
    profile = target.upstream.profile
    wire = profile.wire
    context_size = target.upstream.config.context_size(target.model)
    if facts.maker is not None and facts.maker not in (wire.maker, client_maker(profile.dialect)):
        return "it cannot open the sealed reasoning of the conversation"
    if facts.has_images and not profile.accepts_images:
        return "it accepts no images"
    if facts.has_tools and not getattr(wire, "free_tools", True):
        return "it accepts no tools"
    if facts.has_schema and getattr(wire, "json_output", "") == "none":
        return "it has no structured output"
    if context_size is not None and facts.tokens > context_size:
        return f"the request has about {facts.tokens} tokens, and its context {context_size}"
    return ""


def _has_image(item: ItemParam) -> bool:
    parts = getattr(item, "content", None) or getattr(item, "output", None)
    return isinstance(parts, list) and any(isinstance(part, InputImageParam) for part in parts)


def _maker_of(item: ItemParam) -> str | None:
    """The maker of sealed reasoning. Content without an envelope is as a Responses server sent it to its client."""
    if not isinstance(item, ReasoningParam) or not item.encrypted_content:
        return None
    envelope = unseal_reasoning(item.encrypted_content)
    return client_maker("responses") if envelope is None else envelope.maker


def _hash_opening(request: Request, items: list[ItemParam]) -> str:
    """The hash of the instructions and of the items up to the first message of the user, which is in every turn."""
    digest = blake2b(digest_size=16)
    digest.update((request.instructions or "").encode("utf-8", "surrogatepass"))
    first = next((index for index, item in enumerate(items) if getattr(item, "role", None) == "user"), 0)
    for item in items[: first + 1]:
        for part in _hashed_parts(item):
            digest.update(b"\0")
            digest.update(part)
    return digest.hexdigest()


def _hashed_parts(item: ItemParam) -> Iterator[bytes]:
    """Texts without what clients add to them in some turns only, such as cache marks; other content as it is."""
    if not isinstance(item, MessageParam):
        yield codec.encode(item)
        return
    yield item.role.encode()
    for part in [item.content] if isinstance(item.content, str) else item.content:
        text = part if isinstance(part, str) else getattr(part, "text", None)
        yield text.encode("utf-8", "surrogatepass") if isinstance(text, str) else codec.encode(part)


def _conversation_id(request: Request) -> str | None:
    try:
        return conversation_id_of(request)
    except ClientFault:
        return None  # the preparation raises it


def _cache_seconds(request: Request) -> float | None:
    """The longest lifetime that the client asks for."""
    lifetimes = (*requested_lifetimes(request), request.prompt_cache_retention or "")
    forms = filter(None, map(LIFETIME.fullmatch, lifetimes))
    return max((int(form[1]) * SECONDS_OF_UNIT[form[2]] for form in forms), default=None)


LIFETIME: Final = re.compile(r"([0-9]{1,4})([smh])")
SECONDS_OF_UNIT: Final[dict[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0}
