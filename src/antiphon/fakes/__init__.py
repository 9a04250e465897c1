"""Scripted, strict servers of every dialect: for tests, for `check` and for the bench."""

from antiphon.fakes.chat import ChatServer
from antiphon.fakes.gemini import GeminiServer
from antiphon.fakes.gemini_errors import gemini_error
from antiphon.fakes.gemini_rules import GeminiLimits
from antiphon.fakes.messages import MessagesServer
from antiphon.fakes.messages_errors import messages_error
from antiphon.fakes.responses import ResponsesServer
from antiphon.fakes.script import (
    SSE_HEAD,
    Gate,
    Received,
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
    "Gate",
    "GeminiLimits",
    "GeminiServer",
    "MessagesServer",
    "Received",
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
