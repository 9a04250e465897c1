"""Reports unknown fields that a translation cannot carry as losses (F-4). It does not change them.

Some unknown fields are no loss: they concern only the client's own stream, or repeat a field of the hub.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, Raw

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, CACHE_MARK, NO_CACHE_MARKS
from antiphon.dialects.dialect import ServerDialectName
from antiphon.protocol.base import Shape
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def report_unknown_fields(shape: Shape, path: str, losses: Losses) -> None:
    """Reports every unknown field of `shape` that is not empty."""
    if not shape.extra:
        return
    for name, raw in shape.extra.items():
        if name not in REDUNDANT_FIELDS and bytes(raw) not in EMPTY_VALUES and not _is_disabled(name, raw):
            own_name = without_prefix(name)
            what, why = LOST_FIELDS.get(own_name, (f"the field {own_name!r}", "the API has no equivalent"))
            losses.add(f"{path}.{own_name}", what, why)


def _is_disabled(name: str, raw: Raw) -> bool:
    """Whether a field asks for citations to be left out, which other servers never add."""
    return name == "messages:citations" and msgspec.json.decode(raw) == {"enabled": False}


def without_prefix(name: str) -> str:
    """The client's own name of a field, without the prefix of its dialect."""
    dialect, _, own_name = name.partition(":")
    return own_name if dialect in DIALECTS else name


def is_handled_by_gateway(name: str, raw: Raw, request: Request) -> bool:
    """Whether the gateway itself handles a field of a client's request, or the field only repeats one of the hub."""
    if name in DEFAULT_VALUES:
        return msgspec.json.decode(raw) in DEFAULT_VALUES[name]
    allowed_members = HANDLED_FIELDS.get(name)
    if allowed_members is None:
        return name in REPEATED_FIELDS and bool(getattr(request, REPEATED_FIELDS[name]))
    value = msgspec.json.decode(raw)
    if value is None or not isinstance(value, dict):
        return value is None
    members = {member: setting for member, setting in value.items() if setting is not None and setting is not False}
    if not members.keys() <= allowed_members:
        return False
    effort = request.reasoning.effort if request.reasoning else UNSET
    if name in EFFORT_FIELDS and not effort and members.keys() != {"exclude"}:  # the answer's writer excludes it
        return False
    return "effort" not in members or members["effort"] == effort


DIALECTS: Final = frozenset(get_args(ServerDialectName))
EMPTY_VALUES: Final = (b"null", b"[]", b"{}", b'""')
#: Fields that repeat another field in the form of one dialect: the object of a tool output, the parts of reasoning,
#: the reason why an answer is incomplete.
REDUNDANT_FIELDS: Final = frozenset(
    {
        "chat:developer",
        "chat:parts",
        "chat:video_url",
        "messages:system",
        "messages:document",
        "messages:stop_reason",
        "gemini:resultObject",
        "gemini:resultParts",
        "gemini:thought",
        "chat:reasoning_details",
    }
)
#: Fields of one dialect, with the members that the gateway handles.
HANDLED_FIELDS: Final = {
    "chat:stream_options": {"include_usage"},
    "ollama:generate": set(),
    "messages:thinking": {"type", "budget_tokens"},
    "messages:thread": {"type", "previous_message_id"},
    "messages:output_config": {"effort"},
    "gemini:thinkingConfig": {"thinkingBudget", "thinkingLevel", "includeThoughts"},
    "chat:reasoning": {"effort", "max_tokens", "enabled", "exclude"},
}
#: Values of fields that mean what every server does without the field.
DEFAULT_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "gemini:responseModalities": (["TEXT"], ["text"], [], None),
    "chat:json_object_schema": (True,),
}
#: Fields that are handled only if the hub's effort carries them.
EFFORT_FIELDS: Final = ("gemini:thinkingConfig", "chat:reasoning")
#: Fields of one dialect that a field of the hub repeats.
REPEATED_FIELDS: Final = {"messages:service_tier": "service_tier"}
#: E-4: how the loss of a cache mark is reported.
LOST_FIELDS: Final = {
    CACHE_MARK: ("a cache mark", NO_CACHE_MARKS),
    CACHE_CONTROL: (f"the field {CACHE_CONTROL!r}", NO_CACHE_MARKS),
}
