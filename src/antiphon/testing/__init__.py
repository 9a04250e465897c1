"""Strict, scripted fake servers of every dialect, for tests of programs that call a model, and for measurements.

`ChatServer`, `ResponsesServer`, `MessagesServer`, `GeminiServer` and `OllamaServer` listen on a loopback port and
answer by a script, a list of replies: `ChatServer([turn(text("Hello"))])`. `antiphon.testing.fixtures` has pytest
fixtures that start them.
"""

from antiphon.testing.chat.server import ChatServer
from antiphon.testing.gemini.errors import gemini_error
from antiphon.testing.gemini.rules import GeminiLimits
from antiphon.testing.gemini.server import GeminiServer
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.errors import messages_error
from antiphon.testing.messages.server import MessagesServer
from antiphon.testing.ollama.rules import ollama_error
from antiphon.testing.ollama.server import OllamaServer
from antiphon.testing.responses.server import ResponsesServer
from antiphon.testing.script import (
    SSE_HEAD,
    Gate,
    ReceivedRequest,
    Reply,
    custom_call,
    end,
    error,
    exactly,
    finish,
    head,
    interleaved,
    pause,
    raw,
    reasoning,
    redacted,
    refusal,
    text,
    tool_call,
    turn,
    usage,
    wait,
    whole,
)

__all__ = [
    "SSE_HEAD",
    "ChatServer",
    "FakeServer",
    "Gate",
    "GeminiLimits",
    "GeminiServer",
    "MessagesServer",
    "OllamaServer",
    "ReceivedRequest",
    "Reply",
    "ResponsesServer",
    "custom_call",
    "end",
    "error",
    "exactly",
    "finish",
    "gemini_error",
    "head",
    "interleaved",
    "messages_error",
    "ollama_error",
    "pause",
    "raw",
    "reasoning",
    "redacted",
    "refusal",
    "text",
    "tool_call",
    "turn",
    "usage",
    "wait",
    "whole",
]
