"""The shapes of Ollama's requests, and the differences between servers (`OllamaWire`).

The shapes for client requests are strict, so that errors name the wrong field. `response_wire` has the response shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.history import OrphanPolicy
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, Text10M
from antiphon.protocol.request import ReasoningEffort
from antiphon.protocol.tools import JsonSchema, ToolName

#: Fields of this dialect in the hub's `extra`.
PREFIX: Final = "ollama:"
#: Fields beside the options that only some servers know.
BODY_PREFIX: Final = f"{PREFIX}body."
#: Members of the body; every other field of this dialect is a member of `options`.
TOP_LEVEL_FIELDS: Final = frozenset({"keep_alive", "truncate", "shift", "_debug_render_only"})
#: Marks a request of `/api/generate`, whose answer has another form.
GENERATE: Final = f"{PREFIX}generate"


class OllamaWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Differences between servers of this dialect. The `[wire]` table of a profile sets them."""

    #: The maker of the server's reasoning. Reasoning that another maker sealed is not sent to the server (RSN-3).
    maker: str = "ollama"
    #: Whether the models think. If not, `think` is not sent, and an effort is a loss.
    thinking: bool = True
    #: The levels of `think` that the server accepts besides true and false; empty: only true and false.
    levels: tuple[ReasoningEffort, ...] = ("low", "medium", "high", "max")
    #: Whether the model accepts images. If not, each becomes a note and a loss.
    images: bool = True
    #: Tool outputs without a call: refuse the request, add a call, or send them as text.
    orphan_outputs: OrphanPolicy = "error"

    @property
    def counts_tokens(self) -> bool:
        """The API has no endpoint that counts tokens."""
        return False

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether to look up reasoning that the client left out of the history."""
        return False

    def can_think(self, model: str) -> bool:
        """Whether the model can be asked for reasoning."""
        del model
        return self.thinking


def wire_after_refusal(wire: OllamaWire, model: str, refused: RefusedPart) -> OllamaWire | None:
    """Return the options without thinking after the server refused it; None if the options would not change."""
    del model
    return replace(wire, thinking=False) if refused == "thinking" and wire.thinking else None


# Shapes of requests to servers.


class FunctionCallOut(Struct, frozen=True, kw_only=True, gc=False):
    index: int
    name: str
    arguments: Raw


class ToolCallOut(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    function: FunctionCallOut


class MessageOut(Struct, frozen=True, kw_only=True, gc=False):
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | UnsetType = UNSET
    images: list[str] | UnsetType = UNSET
    tool_calls: list[ToolCallOut] | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


class FunctionOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    description: str | UnsetType = UNSET
    parameters: JsonSchema


class ToolOut(Struct, frozen=True, kw_only=True, gc=False):
    type: Literal["function"] = "function"
    function: FunctionOut


class RequestOut(Struct, frozen=True, kw_only=True, gc=False):
    """The body of `POST /api/chat`."""

    model: str | UnsetType = UNSET
    messages: list[MessageOut]
    stream: bool
    tools: Raw | UnsetType = UNSET
    format: Literal["json"] | JsonSchema | UnsetType = UNSET
    think: bool | str | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: int | UnsetType = UNSET
    options: dict[str, Any] | UnsetType = UNSET


# Shapes of client requests: the codec reports errors and keeps unknown fields.

Base64 = Annotated[str, Meta(min_length=1)]
Think = bool | Literal["low", "medium", "high", "max"]
Role = Annotated[str, Meta(pattern=r"^(?i:user|assistant|system|tool)$")]


class FunctionCallIn(Shape, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, Any] | None | UnsetType = UNSET
    index: int | None | UnsetType = UNSET
    description: str | None | UnsetType = UNSET  # some clients copy it from the tool


class ToolCallIn(Shape, frozen=True, kw_only=True):
    function: FunctionCallIn
    id: str | None | UnsetType = UNSET
    type: str | None | UnsetType = UNSET


class MessageIn(Shape, frozen=True, kw_only=True):
    """A message of any role. `request_in` checks which fields the role needs."""

    role: Role
    content: Text10M | None | UnsetType = UNSET
    thinking: str | None | UnsetType = UNSET
    images: list[Base64] | None | UnsetType = UNSET
    tool_calls: list[ToolCallIn] | None | UnsetType = UNSET
    tool_name: str | None | UnsetType = UNSET
    tool_call_id: str | None | UnsetType = UNSET


class FunctionIn(Shape, frozen=True, kw_only=True):
    name: ToolName
    description: str | None | UnsetType = UNSET
    parameters: JsonSchema | None | UnsetType = UNSET


class ToolIn(Shape, frozen=True, kw_only=True):
    function: FunctionIn
    type: Literal["function"] | None | UnsetType = UNSET


class OptionsIn(Shape, frozen=True, kw_only=True):
    """The options that the hub has. Other options stay in `extra`."""

    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    num_predict: int | None | UnsetType = UNSET


class SettingsIn(Shape, frozen=True, kw_only=True):
    """The fields that both endpoints have. Fields that the hub does not have stay in `extra`."""

    model: str | None | UnsetType = UNSET
    stream: bool | None | UnsetType = UNSET
    format: Literal["", "json"] | JsonSchema | None | UnsetType = UNSET
    options: OptionsIn | None | UnsetType = UNSET
    think: Think | None | UnsetType = UNSET
    logprobs: bool | None | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None | UnsetType = UNSET


class ChatIn(SettingsIn, frozen=True, kw_only=True):
    """The body of `POST /api/chat`."""

    messages: list[MessageIn] | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET


class GenerateIn(SettingsIn, frozen=True, kw_only=True):
    """The body of `POST /api/generate`."""

    prompt: Text10M | None | UnsetType = UNSET
    system: str | None | UnsetType = UNSET
    images: list[Base64] | None | UnsetType = UNSET
