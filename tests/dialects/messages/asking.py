"""Test helpers that check requests with the rules of the strict fake, for servers of every configuration."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from antiphon.dialects.messages import request_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.testing.messages.issued_thoughts import IssuedThoughts
from antiphon.testing.messages.rules import MessagesLimits, check
from antiphon.testing.script import ReceivedRequest

FIELDS = ("temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "context_management")
#: A server that supports everything.
RICH = MessagesWire(
    system="inline",
    thinking="adaptive",
    efforts=("low", "medium", "high", "xhigh", "max"),
    thinking_display=True,
    json_output="output_config",
    strict_tools=True,
    both_samplings=False,
    auto_cache=True,
    fields=FIELDS,
)


def ask(request: Request, wire: MessagesWire = RICH) -> tuple[dict[str, Any], Losses]:
    """The body that is sent, with the losses. AssertionError if a server would refuse it."""
    body, losses = request_from_hub(request, wire)
    return assert_messages_accept(body, wire), losses


def assert_messages_accept(body: bytes, wire: MessagesWire = RICH) -> dict[str, Any]:
    """The decoded body; `RefusedMessage` if a server of this dialect would refuse it."""
    read: dict[str, Any] = json.loads(body, object_pairs_hook=_no_key_twice)
    headers = {
        "content-type": "application/json",
        "x-version": "2023-06-01",
        "x-beta": "structured-outputs-1,context-management-1",
    }
    received = ReceivedRequest(method="POST", path="/v1/messages", headers=headers, body=body)
    return check(received, MessagesLimits(system_messages=wire.system == "inline"), AnyThoughts()) and read


def wires(**fixed: Any) -> st.SearchStrategy[MessagesWire]:
    """Servers of every configuration of the strict fake."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "system": st.sampled_from(["inline", "user", "top"]),
        "thinking": st.sampled_from(["adaptive", "budget", "none"]),
        "efforts": st.sampled_from([("low", "medium"), ("low", "medium", "high", "max")]),
        "thinking_display": st.booleans(),
        "json_output": st.sampled_from(["output_config", "output_format", "none"]),
        "strict_tools": st.booleans(),
        "images": st.booleans(),
        "documents": st.booleans(),
        "orphan_outputs": st.sampled_from(["synthesize", "text"]),
        "both_samplings": st.just(False),
        "auto_cache": st.booleans(),
        "fields": st.sampled_from([FIELDS, FIELDS[:2], ()]),
    }
    return st.builds(MessagesWire, **{**options, **{name: st.just(value) for name, value in fixed.items()}})


class AnyThoughts(IssuedThoughts):
    """Accepts every signature except an empty one: other tests check the maker."""

    def is_issued(self, thinking: str, signature: str) -> bool:  # noqa: ARG002
        return bool(signature)

    def is_issued_redacted(self, data: str) -> bool:
        return bool(data)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), f"a key twice: {[name for name, _ in pairs]}"
    return dict(pairs)
