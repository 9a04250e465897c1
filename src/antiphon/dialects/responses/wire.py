"""Differences between servers of this API. The shapes are those of the hub; lenient ones are in `response_wire`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from antiphon.dialects.common.model_names import WILDCARD, matches_any
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol.request import ReasoningEffort


class ResponsesWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Differences between servers that no quirk can express. The `[wire]` table of a profile sets them."""

    #: The maker of the server's reasoning. Reasoning of another maker is not sent to the server (RSN-3).
    maker: str = "responses"
    #: The type of text parts in assistant messages (C-2). A quirk covers servers that want plain strings.
    assistant_content: Literal["output_text", "input_text"] = "output_text"
    #: The status of items in the history.
    status_fields: Literal["keep", "drop"] = "keep"
    #: Ids of items in the history: all of them, only those in the form of ids that the server itself issues, or none.
    item_ids: Literal["keep", "own", "drop"] = "keep"
    #: The phase of assistant messages (ITEM-7).
    phase: Literal["keep", "drop"] = "keep"
    #: Reasoning in the history: all of it, or only the encrypted content.
    reasoning: Literal["keep", "encrypted_only"] = "keep"
    #: Reasoning in the history that no message or call of the model follows.
    unpaired_reasoning: Literal["keep", "drop"] = "keep"
    #: Members of citations: all of them, or only those of this API. Servers of other APIs add members.
    citation_members: Literal["keep", "own"] = "keep"
    #: Types of content parts that the server does not accept. A text replaces them, and each is reported as a loss.
    lacks_parts: tuple[str, ...] = ()
    #: Deferred tools: always sent as deferred, or only together with the server's tool search.
    deferred_tools: Literal["keep", "with_search"] = "keep"
    #: Items of unknown type.
    unknown_items: Literal["keep", "drop"] = "keep"
    #: Custom tools, namespaces, hosted tools and `additional_tools`: kept, or turned into functions where possible.
    extension_tools: Literal["keep", "flatten"] = "keep"
    #: Patterns of models with a web search of the server. The searches of other APIs are sent to them in its form.
    web_search_models: tuple[str, ...] = ()
    #: Whether the server stores responses. If not, `store` is false, and no ids of responses or conversations are sent.
    stateful: bool = False
    #: Whether encrypted reasoning is always requested. Stateless servers may accept reasoning only in this form.
    sealed_reasoning: bool = False
    #: Patterns of models that do not reason. The server refuses requests for their encrypted reasoning.
    no_reasoning_models: tuple[str, ...] = ()
    #: The values of `reasoning.effort` that the server supports; others become the nearest one (RSN-4). Empty: all.
    efforts: tuple[ReasoningEffort, ...] = ()
    #: Whether the server counts the tokens of a request at `/responses/input_tokens`.
    counts_tokens: bool = False
    #: Patterns of models that accept cache marks (`prompt_cache_breakpoint`) and `prompt_cache_options` (E-4).
    breakpoint_models: tuple[str, ...] = (WILDCARD,)
    #: Fields that the API does not have and the server accepts from clients of every dialect, such as `top_k`.
    extra_fields: tuple[str, ...] = ()
    #: The longest name of a function that the server takes; longer names are replaced (REQ-8).
    max_name_length: Annotated[int, Meta(ge=16)] = 64
    #: Request fields that the server does not accept. Each is reported as a loss.
    lacks: list[str] = []
    #: A stream without a terminal event fails ("terminal"), or completes if all items are done ("items").
    end: Literal["terminal", "items"] = "terminal"
    #: How a truncated response is detected: by its status ("told"), or by its usage although it is "completed".
    cut: Literal["told", "by_usage"] = "told"

    @property
    def has_client_tools(self) -> bool:
        """Whether the server has the tools that the client runs, such as `shell`."""
        return self.extension_tools == "keep"

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether to look up reasoning that the client left out of the history."""
        return self.sealed_reasoning

    def can_think(self, model: str) -> bool:
        """Whether the model can be asked for reasoning."""
        return "reasoning" not in self.lacks and not matches_any(model, self.no_reasoning_models)


def wire_after_refusal(wire: ResponsesWire, model: str, refused: RefusedPart) -> ResponsesWire | None:
    """Return the options that avoid the refused part, or None if they would not change the request."""
    del model
    return replace(wire, no_reasoning_models=(WILDCARD,)) if refused == "encrypted_reasoning" else None


#: Types of content parts, also those that only items of the server's own tools have.
PART_TYPES: Final = frozenset(
    {
        *("input_text", "input_image", "input_file", "input_audio", "input_video", "output_text", "refusal", "text"),
        *("summary_text", "reasoning_text", "tool_use", "tool_result", "computer_screenshot"),
    }
)
