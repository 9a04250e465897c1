"""Fields that nobody knows, where they cannot be carried: each is named as a loss (F-4), and nothing else is done to them.

Some speak of the client's own stream alone, which no server makes, and some were said in the hub's own words as well: nothing of
them is lost.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw

from antiphon.protocol.base import Shape
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def report_unknown_fields(shape: Shape, path: str, losses: Losses) -> None:
    """Reports every unknown field of `shape` that holds something."""
    if not shape.extra:
        return
    for name, raw in shape.extra.items():
        if name not in REDUNDANT_FIELDS and bytes(raw) not in EMPTY_VALUES:
            losses.add(f"{path}.{name}", f"the field {name!r}", LOSS_REASONS.get(name, "it has no equivalent there"))


def is_handled_by_gateway(name: str, raw: Raw, request: Request) -> bool:
    """Whether a field of a client's request is served by what writes the client's stream, and means nothing to a server, or says
    again what the hub's effort says."""
    allowed_members = HANDLED_FIELDS.get(name)
    if allowed_members is None:
        return False
    value = msgspec.json.decode(raw)
    if value is None or not isinstance(value, dict) or not value.keys() <= allowed_members:
        return value is None
    effort = request.reasoning.effort if request.reasoning else UNSET
    return "effort" not in value or value["effort"] == effort


EMPTY_VALUES: Final = (b"null", b"[]", b"{}", b'""')
#: What an item says in another form as well: the object that a tool gave, whose text is its output.
REDUNDANT_FIELDS: Final = frozenset({"gemini:response"})
#: Fields that only one dialect knows, and all that they may hold without being missed elsewhere.
HANDLED_FIELDS: Final = {
    "chat:stream_options": {"include_usage"},
    "messages:thinking": {"type", "budget_tokens"},
    "messages:output_config": {"effort"},
}
LOSS_REASONS: Final = {"cache_control": "caching is the server's own matter there"}  # E-4
