"""Reports unknown fields that a translation cannot carry as losses (F-4). It does not change them.

Some unknown fields are no loss: they concern only the client's own stream, or repeat a field of the hub.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw

from antiphon.protocol.base import Shape
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def report_unknown_fields(shape: Shape, path: str, losses: Losses) -> None:
    """Reports every unknown field of `shape` that is not empty."""
    if not shape.extra:
        return
    for name, raw in shape.extra.items():
        if name not in REDUNDANT_FIELDS and bytes(raw) not in EMPTY_VALUES:
            losses.add(f"{path}.{name}", f"the field {name!r}", LOSS_REASONS.get(name, "the API has no equivalent"))


def is_handled_by_gateway(name: str, raw: Raw, request: Request) -> bool:
    """Whether the gateway itself handles a field of a client's request, or the field only repeats the hub's effort."""
    allowed_members = HANDLED_FIELDS.get(name)
    if allowed_members is None:
        return False
    value = msgspec.json.decode(raw)
    if value is None or not isinstance(value, dict) or not value.keys() <= allowed_members:
        return value is None
    effort = request.reasoning.effort if request.reasoning else UNSET
    return "effort" not in value or value["effort"] == effort


EMPTY_VALUES: Final = (b"null", b"[]", b"{}", b'""')
#: Fields that repeat another field in the form of one dialect: the object of a tool output, the parts of reasoning.
REDUNDANT_FIELDS: Final = frozenset(
    {"chat:developer", "gemini:response", "gemini:resultParts", "gemini:thought", "chat:reasoning_details"}
)
#: Fields of one dialect, with the members that the gateway handles.
HANDLED_FIELDS: Final = {
    "chat:stream_options": {"include_usage"},
    "ollama:generate": set(),
    "messages:thinking": {"type", "budget_tokens"},
    "messages:output_config": {"effort"},
}
LOSS_REASONS: Final = {"cache_control": "the server manages its cache itself"}  # E-4
