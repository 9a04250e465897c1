"""Test helper that reads a client's body with the required fields."""

from __future__ import annotations

import json
from typing import Any

from antiphon.dialects.messages.request_in import request_to_hub
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

HELLO = [{"role": "user", "content": "hello"}]


def read(messages: Any = HELLO, **members: Any) -> tuple[Request, Losses]:
    return request_to_hub(json.dumps({"model": "m", "max_tokens": 100, "messages": messages, **members}).encode())
