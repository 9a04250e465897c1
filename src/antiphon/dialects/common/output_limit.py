"""Limits of output tokens in the requests of clients: allowed values, and values that mean no limit (REQ-8)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.protocol.request import MAX_OUTPUT_LIMIT, Request

#: A limit of a dialect that has no value for "no limit".
OutputLimit = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_LIMIT)]


def output_limit_to_hub(limit: int | None | UnsetType, path: str, unlimited: tuple[int, ...]) -> int | None | UnsetType:
    """Return a limit for the hub. The values in `unlimited` mean that there is none."""
    if not isinstance(limit, int) or 1 <= limit <= MAX_OUTPUT_LIMIT:
        return limit
    if limit in unlimited:
        return UNSET
    words = " or ".join(map(str, unlimited))
    raise InvalidValue(
        f"{path}: expected an integer from 1 to {MAX_OUTPUT_LIMIT}, or {words} for no limit, got {limit}", param=path
    )


def refuse_empty_output(request: Request) -> None:
    """Refuse `max_tokens: 0` of a Messages client, which fills a prompt cache: other APIs have no equivalent."""
    if request.max_output_tokens == 0:
        raise UnsupportedParameter(
            "max_tokens: expected at least 1, got 0: only servers of the Messages API fill a cache without an answer",
            param="max_tokens",
        )


CHAT_UNLIMITED: Final = (-1,)
OLLAMA_UNLIMITED: Final = (-1, -2)
