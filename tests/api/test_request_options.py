"""Request options: which event style a client gets, and in which order header, key and server decide (API-6)."""

from __future__ import annotations

from itertools import product
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from tests.api.stateful import ALICE, BOB, lab

from antiphon import sse, testing
from antiphon.api.request_options import requested_style
from antiphon.config import Config, ServerConfig
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import ClientFault
from antiphon.http.asgi import Scope
from antiphon.testing import turn

pytestmark = pytest.mark.without_coverage
NAMES: Final = {"default": "reasoning_text", "standard": "reasoning", "older": "reasoning_text"}
CHOICES: Final[tuple[SelectableEventStyle | None, ...]] = (None, "standard", "older")
AGENTS: Final = (
    "",
    "curl/8.5",
    "OpenAI/Python 3.49.0",
    "AsyncOpenAI/Python 3.49.0",
    "Agents/Python 0.24.0",
    "pydantic-ai/2.62.0",
    "codex_exec/0.166.0 (Linux)",
    "ai/7.0.169 ai-sdk/openai/4.0.114 runtime/node.js/20",
)


def scope(style: str | None = None, **headers: str) -> Scope:
    named = {name.replace("_", "-"): value for name, value in headers.items()} | (
        {"antiphon-style": style} if style else {}
    )
    return {"headers": [(name.encode(), value.encode()) for name, value in named.items()]}


@pytest.mark.parametrize(("header", "key", "server"), list(product(CHOICES, CHOICES, CHOICES)))
def test_style_comes_from_header_then_key_then_server_then_default(
    header: SelectableEventStyle | None, key: SelectableEventStyle | None, server: SelectableEventStyle | None
) -> None:
    """API-6."""
    expected = next((style for style in (header, key, server) if style is not None), "default")
    assert requested_style(scope(header), key, server) == expected


@pytest.mark.parametrize("agent", AGENTS)
def test_style_does_not_depend_on_the_user_agent(agent: str) -> None:
    """API-6: neither by its User-Agent nor by the header that some clients send on a WebSocket."""
    assert requested_style(scope(user_agent=agent), None, None) == "default"
    assert (
        requested_style(scope(user_agent=agent, openai_beta="responses_websockets=2026-02-06"), None, None) == "default"
    )
    assert requested_style(scope(user_agent=agent), None, "older") == "older"


@pytest.mark.parametrize("value", ["newest", "Standard", "default", "older,standard", "x" * 1000])
def test_unknown_style_is_refused(value: str) -> None:
    """API-6; the message names the value, the allowed values and the header."""
    with pytest.raises(ClientFault, match=r"Antiphon-Style.*'standard' or 'older'") as refused:
        requested_style(scope(value), "older", "standard")
    assert refused.value.param == "antiphon-style"
    assert len(refused.value.message) < 200


def with_styles(config: Config) -> Config:
    """The server's style is `standard`, alice's key has `older`, bob's has none."""
    alice, bob = config.keys
    return replace(config, server=ServerConfig(style="standard"), keys=[replace(alice, style="older"), bob])


@pytest.mark.io
@pytest.mark.parametrize(("key", "style"), [(ALICE, "older"), (BOB, "standard")])
def test_style_of_key_or_server_applies_to_every_event_stream(key: str, style: str) -> None:
    """API-6: POST, a WebSocket, a stored stream and a background stream."""
    thought = turn(testing.reasoning("Hm."), testing.text("Hi"))
    with lab(config=with_styles) as here:
        here.says += [thought] * 4
        posted = here.ask("Go.", key=key, stream=True).content
        stored = here.ask("Go.", key=key).json()["id"]
        replayed = here.get(f"{stored}?stream=true", key=key).content
        made = here.ask("Go.", key=key, stream=True, background=True).content
        with here.socket(key=key) as talk:
            on_socket = [event["type"] for event in talk.ask("Go.")]
    for stream in (posted, replayed, made):
        frames = sse.Decoder().feed(stream)
        kinds = [msgspec.json.decode(frame.data)["type"] for frame in frames if frame.data != sse.DONE]
        assert f"response.{NAMES[style]}.delta" in kinds
        assert (frames[-1].data == sse.DONE) == (style != "older")
    assert f"response.{NAMES[style]}.delta" in on_socket
