"""The Python API for agents that act as a model: their events become Open Responses, for any client.

`agent` and `Turn` are for new agents; `ResponseBuilder` and `OpenResponsesIntegration` for agents that emit thread
events; `command_agent` for agents that are a program.
"""

from antiphon.dialects.agent_log.wire import (
    AgentMessageItem,
    AgentUsage,
    CommandExecutionItem,
    ErrorItem,
    FileChangeItem,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    ReasoningItem,
    ThreadCompleted,
    ThreadError,
    ThreadEvent,
    ThreadItem,
    ThreadStarted,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WebSearchItem,
    decode_thread_event,
)
from antiphon.producer.agent import Agent, agent
from antiphon.producer.builder import ResponseBuilder
from antiphon.producer.command import command_agent
from antiphon.producer.integration import OpenResponsesCallback, OpenResponsesIntegration
from antiphon.producer.settings import OpenResponsesConfig, load_settings
from antiphon.producer.turn import Turn
from antiphon.protocol.emitters import CallbackEmitter, Emitter, EventCollector, NullEmitter, SseEmitter

__all__ = [
    "Agent",
    "AgentMessageItem",
    "AgentUsage",
    "CallbackEmitter",
    "CommandExecutionItem",
    "Emitter",
    "ErrorItem",
    "EventCollector",
    "FileChangeItem",
    "ItemCompleted",
    "ItemStarted",
    "ItemUpdated",
    "McpToolCallItem",
    "NullEmitter",
    "OpenResponsesCallback",
    "OpenResponsesConfig",
    "OpenResponsesIntegration",
    "OtherEvent",
    "OtherItem",
    "ReasoningItem",
    "ResponseBuilder",
    "SseEmitter",
    "ThreadCompleted",
    "ThreadError",
    "ThreadEvent",
    "ThreadItem",
    "ThreadStarted",
    "ToolInvocationItem",
    "ToolOutputItem",
    "Turn",
    "TurnCompleted",
    "TurnFailed",
    "TurnStarted",
    "WebSearchItem",
    "agent",
    "command_agent",
    "decode_thread_event",
    "load_settings",
]
