"""The clients that `make test-clients` tests, as data: each with its set-up on the page, and the features that it
offers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

from msgspec import Struct
from tests.clients.heavy.features import Style, ToolUse
from tests.clients.heavy.programs import Environment

Dialect = Literal["chat", "responses", "messages", "gemini", "ollama"]
UPSTREAMS: Final = ("chat", "messages", "responses", "gemini")


class Client(Struct, frozen=True, kw_only=True):
    """One way to use one client."""

    name: str
    dialect: Dialect  # the API that it uses
    environment: Environment
    packages: tuple[str, ...]  # the first is the client; all have their version in the table
    driver: str  # a module in `drivers`, or a name in `agents` for a program
    is_agent: bool = False
    shows_pieces: bool = True  # whether its output has the pieces of a stream
    heading: str  # the heading of the page above the block with its set-up
    variable: str = ""  # the variable of the set-up that is the model, if there are several
    use: ToolUse = ToolUse()
    style: Style = "tools"
    not_offered: dict[str, str] = {}  # features, with the reason
    shows_reasoning: Collection[str] = UPSTREAMS  # the upstreams whose reasoning it shows
    returns_reasoning: Collection[str] = UPSTREAMS  # the upstreams that get their reasoning back
    note: str = ""  # what a reader of the table must know
    marks_failures: bool = False  # whether its API has a mark for the result of a failed tool, and the client sets it

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The upstreams of the test: all of other APIs."""
        return tuple(name for name in UPSTREAMS if name != self.dialect)


def _sdk(name: str, dialect: Dialect, driver: str, **options: Any) -> Client:
    return Client(name=name, dialect=dialect, environment="sdks", driver=driver, **options)


def _agent(name: str, dialect: Dialect, driver: str, **options: Any) -> Client:
    return Client(name=name, dialect=dialect, environment="node", driver=driver, is_agent=True, **options)


NO_SCHEMA: Final = "the program has no option for a schema"
NO_TOOLS: Final = "the client edits files by text of the model, without tools"
CODEX: Final = ToolUse("exec_command", {"cmd": "cat greeting.txt"}, {"cmd": "echo no such note; exit 3"})
OPENCODE: Final = ToolUse("read", {"filePath": "greeting.txt"}, {"filePath": "no such note.txt"})
OPEN: Final = ("chat",)  # upstreams whose reasoning needs no seal
STORED: Final = (
    "the client drops reasoning, or the seal that its server requires; the gateway restores both from stored answers, here "
    "with `store: true`"
)
SUMMARIES: Final = "the client shows summaries of reasoning only; the setting that requests one is on"
SUMMARIES_IN_STREAMS: Final = "the client shows the summaries of Gemini servers in streams, not in whole answers"
UNSEALED: Final = "the API has no field for the seal of reasoning, so only servers that need none get it back"
SEAL_DROPPED: Final = "the client drops the seal of reasoning, so only servers that need none get it back"
NOT_PRINTED: Final = "the output has no reasoning"
RESULTS_AS_TEXT: Final = "the client sends the results of tools as text of messages"
TOOLS_AS_TEXT: Final = "the client describes tools and schemas in text, and reads calls and values from text"
SHOWS_ERRORS: Final = "the result of a failed tool has its error only with `failure_error_function`"
ONLY_VALUES: Final = "the client makes values of a schema; for all else there is the SDK that it wraps"
ONLY_TEXT: Final = "the client neither shows the reasoning of chat servers nor returns it"
SDKS: Final = [
    _sdk(
        "openai (Python), Responses", "responses", "openai_responses", packages=("openai",), heading="openai (Python)"
    ),
    _sdk("openai (Python), Chat", "chat", "openai_chat", packages=("openai",), heading="openai (Python)"),
    _sdk(
        "anthropic (Python)",
        "messages",
        "anthropic_messages",
        packages=("anthropic",),
        heading="anthropic (Python)",
        marks_failures=True,
    ),
    _sdk(
        "anthropic (Python), `tool_runner`",
        "messages",
        "anthropic_tool_runner",
        packages=("anthropic",),
        heading="anthropic (Python)",
        marks_failures=True,
    ),
    _sdk(
        "google-genai (Python)",
        "gemini",
        "google_genai",
        packages=("google-genai",),
        heading="google-genai (Python)",
        marks_failures=True,
    ),
    _sdk(
        "ollama (Python)",
        "ollama",
        "ollama_chat",
        note=UNSEALED,
        packages=("ollama",),
        heading="ollama (Python)",
        returns_reasoning=OPEN,
    ),
]
NODE_SDKS: Final = [
    Client(
        name="openai (Node), Responses",
        dialect="responses",
        environment="node",
        driver="openai_responses",
        packages=("openai",),
        heading="openai (Node)",
    ),
    Client(
        name="openai (Node), Chat",
        dialect="chat",
        environment="node",
        driver="openai_chat",
        note=STORED,
        packages=("openai",),
        heading="openai (Node)",
    ),
    Client(
        name="anthropic (Node)",
        dialect="messages",
        environment="node",
        driver="anthropic_messages",
        packages=("@anthropic-ai/sdk",),
        heading="anthropic (Node)",
        marks_failures=True,
    ),
    Client(
        name="anthropic (Node), `toolRunner`",
        dialect="messages",
        environment="node",
        driver="anthropic_tool_runner",
        packages=("@anthropic-ai/sdk",),
        heading="anthropic (Node)",
        marks_failures=True,
    ),
    Client(
        name="google-genai (Node)",
        dialect="gemini",
        environment="node",
        driver="google_genai",
        packages=("@google/genai",),
        heading="google-genai (Node)",
        marks_failures=True,
    ),
    Client(
        name="ollama (Node)",
        dialect="ollama",
        environment="node",
        driver="ollama_chat",
        note=UNSEALED,
        packages=("ollama",),
        heading="ollama (Node)",
        returns_reasoning=OPEN,
    ),
]
FRAMEWORKS: Final = [
    _sdk(
        "openai-agents, HTTP",
        "responses",
        "openai_agents",
        note=SHOWS_ERRORS,
        packages=("openai-agents", "openai"),
        heading="openai-agents",
        variable="http",
    ),
    _sdk(
        "openai-agents, WebSocket",
        "responses",
        "openai_agents",
        note=SHOWS_ERRORS,
        packages=("openai-agents", "openai"),
        heading="openai-agents",
        variable="websocket",
    ),
    _sdk(
        "openai-agents, `OpenAIConversationsSession`",
        "responses",
        "openai_agents",
        note=SHOWS_ERRORS,
        packages=("openai-agents", "openai"),
        heading="openai-agents with a session",
    ),
    _sdk(
        "pydantic-ai, Responses",
        "responses",
        "pydantic_ai_agent",
        packages=("pydantic-ai-slim",),
        heading="pydantic-ai",
        variable="responses",
    ),
    _sdk(
        "pydantic-ai, Chat",
        "chat",
        "pydantic_ai_agent",
        note=STORED,
        packages=("pydantic-ai-slim",),
        heading="pydantic-ai",
        variable="chat",
    ),
    _sdk(
        "pydantic-ai, Anthropic",
        "messages",
        "pydantic_ai_agent",
        packages=("pydantic-ai-slim",),
        heading="pydantic-ai",
        variable="anthropic",
        marks_failures=True,
    ),
    _sdk(
        "pydantic-ai, Google",
        "gemini",
        "pydantic_ai_agent",
        packages=("pydantic-ai-slim",),
        heading="pydantic-ai",
        variable="google",
        marks_failures=True,
    ),
    _sdk(
        "LangChain, Responses",
        "responses",
        "langchain_chat",
        note=SUMMARIES,
        packages=("langchain-openai",),
        heading="LangChain",
        variable="responses",
    ),
    _sdk(
        "LangChain, Chat",
        "chat",
        "langchain_chat",
        note=STORED,
        packages=("langchain-openai",),
        heading="LangChain",
        shows_reasoning=(),
        variable="chat",
    ),
    _sdk(
        "LangChain, Anthropic",
        "messages",
        "langchain_chat",
        packages=("langchain-anthropic",),
        heading="LangChain",
        variable="anthropic",
        marks_failures=True,
    ),
    _sdk("llm", "chat", "llm_tool", packages=("llm",), heading="llm", not_offered={"reasoning": ONLY_TEXT}),
    _sdk(
        "smolagents",
        "chat",
        "smolagents_agent",
        note=RESULTS_AS_TEXT,
        packages=("smolagents",),
        heading="smolagents",
        style="final_answer",
        not_offered={"reasoning": ONLY_TEXT},
    ),
    Client(
        name="LlamaIndex, Responses",
        dialect="responses",
        environment="frameworks",
        driver="llama_index_llm",
        packages=("llama-index-llms-openai-like",),
        heading="LlamaIndex",
        variable="responses",
    ),
    Client(
        name="LlamaIndex, Chat",
        dialect="chat",
        environment="frameworks",
        driver="llama_index_llm",
        note=STORED,
        packages=("llama-index-llms-openai-like",),
        heading="LlamaIndex",
        variable="chat",
    ),
    Client(
        name="instructor",
        dialect="chat",
        environment="frameworks",
        driver="instructor_client",
        packages=("instructor",),
        heading="instructor",
        style="value",
        not_offered=dict.fromkeys(("plain", "tool", "failed_tool", "reasoning"), ONLY_VALUES),
    ),
    Client(
        name="dspy",
        dialect="chat",
        environment="frameworks",
        driver="dspy_modules",
        note=TOOLS_AS_TEXT,
        packages=("dspy",),
        heading="dspy",
        style="text",
        returns_reasoning=(),
    ),
]
AI_SDK: Final = [
    Client(
        name="AI SDK, `@ai-sdk/openai`",
        dialect="responses",
        environment="node",
        driver="ai_sdk",
        note=SUMMARIES,
        packages=("ai", "@ai-sdk/openai"),
        heading="AI SDK",
        variable="openai",
    ),
    Client(
        name="AI SDK, `@ai-sdk/openai`, chat",
        dialect="chat",
        environment="node",
        driver="ai_sdk",
        note=STORED,
        packages=("ai", "@ai-sdk/openai"),
        heading="AI SDK",
        variable="openai-chat",
        shows_reasoning=(),
    ),
    Client(
        name="AI SDK, `@ai-sdk/anthropic`",
        dialect="messages",
        environment="node",
        driver="ai_sdk",
        packages=("ai", "@ai-sdk/anthropic"),
        heading="AI SDK",
        variable="anthropic",
        marks_failures=True,
    ),
    Client(
        name="AI SDK, `@ai-sdk/google`",
        dialect="gemini",
        environment="node",
        driver="ai_sdk",
        packages=("ai", "@ai-sdk/google"),
        heading="AI SDK",
        variable="google",
    ),
    Client(
        name="AI SDK, `@ai-sdk/open-responses`",
        dialect="responses",
        environment="node",
        driver="ai_sdk",
        note=SUMMARIES_IN_STREAMS,
        packages=("ai", "@ai-sdk/open-responses"),
        heading="AI SDK",
        variable="open-responses",
        shows_reasoning=("chat", "messages"),
    ),
]
AGENTS: Final = [
    _agent(
        "Claude Code",
        "messages",
        "claude",
        packages=("@anthropic-ai/claude-code",),
        heading="Claude Code",
        use=ToolUse(
            "Bash",
            {"command": "cat greeting.txt", "description": "Reads"},
            {"command": "echo no such note; exit 3", "description": "Reads"},
        ),
        marks_failures=True,
    ),
    _agent("Codex", "responses", "codex", packages=("@openai/codex",), heading="Codex", use=CODEX, shows_pieces=False),
    _agent(
        "Codex, WebSocket",
        "responses",
        "codex-websocket",
        packages=("@openai/codex",),
        heading="Codex",
        use=CODEX,
        shows_pieces=False,
    ),
    _agent(
        "Gemini CLI",
        "gemini",
        "gemini",
        note=NOT_PRINTED,
        packages=("@google/gemini-cli",),
        heading="Gemini CLI",
        use=ToolUse("read_file", {"file_path": "greeting.txt"}, {"file_path": "no such note.txt"}),
        marks_failures=True,
        not_offered={"structured": NO_SCHEMA},
        shows_reasoning=(),
    ),
    _agent(
        "opencode, `@ai-sdk/openai`",
        "responses",
        "opencode-responses",
        note=SUMMARIES,
        packages=("opencode-ai",),
        heading="opencode",
        use=OPENCODE,
        shows_pieces=False,
        not_offered={"structured": NO_SCHEMA},
    ),
    _agent(
        "opencode, `@ai-sdk/anthropic`",
        "messages",
        "opencode-messages",
        marks_failures=True,
        packages=("opencode-ai",),
        heading="opencode",
        use=OPENCODE,
        shows_pieces=False,
        not_offered={"structured": NO_SCHEMA},
    ),
    _agent(
        "opencode, `@ai-sdk/openai-compatible`",
        "chat",
        "opencode-chat",
        returns_reasoning=(),
        note=SEAL_DROPPED,
        packages=("opencode-ai",),
        heading="opencode",
        use=OPENCODE,
        shows_pieces=False,
        not_offered={"structured": NO_SCHEMA},
    ),
    Client(
        name="aider",
        dialect="chat",
        environment="aider",
        driver="aider",
        is_agent=True,
        packages=("aider-chat",),
        heading="aider",
        style="no_tools",
        shows_pieces=False,
        returns_reasoning=(),
        not_offered={"tool": NO_TOOLS, "failed_tool": NO_TOOLS, "structured": NO_SCHEMA},
    ),
]
CLIENTS: Final = [*SDKS, *NODE_SDKS, *FRAMEWORKS, *AI_SDK, *AGENTS]
