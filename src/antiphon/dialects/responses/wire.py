"""What differs between servers of this API. Its shapes are the hub's own; those of poor servers are in `server_shapes`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.model_names import WILDCARD
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol.request import ReasoningEffort


class ResponsesWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between servers of this dialect and no quirk can say. A profile's `[wire]` table fills it."""

    #: Whose reasoning the server's is: what has another maker's name on it is not sent there (RSN-3).
    maker: str = "responses"
    #: The type of text parts in the assistant's own turns (C-2). A server that wants plain strings has a quirk for it.
    assistant_content: Literal["output_text", "input_text"] = "output_text"
    #: Statuses of items in the history.
    status_fields: Literal["keep", "drop"] = "keep"
    #: The phase of assistant messages (ITEM-7).
    phase: Literal["keep", "drop"] = "keep"
    #: Reasoning in the history: all of it, or only what is sealed, without its open text.
    reasoning: Literal["keep", "encrypted_only"] = "keep"
    #: Items of types that nobody knows.
    unknown_items: Literal["keep", "drop"] = "keep"
    #: Custom tools, namespaces, hosted tools and `additional_tools`: as they are, or made into plain functions where that can be.
    extension_tools: Literal["keep", "flatten"] = "keep"
    #: Whether the server keeps state for us: else `store` is false, and neither earlier responses nor conversations are named.
    stateful: bool = False
    #: Whether reasoning is always asked for sealed too: a server may take none back otherwise that it has not kept itself.
    sealed_reasoning: bool = False
    #: Patterns of models that do not reason: the server refuses to be asked for their reasoning sealed.
    no_reasoning_models: tuple[str, ...] = ()
    #: The words for `reasoning.effort` that the server knows, if it does not know them all; another becomes the nearest (RSN-4).
    efforts: tuple[ReasoningEffort, ...] = ()
    #: Whether it counts the tokens of a request, at `/responses/input_tokens`.
    counts_tokens: bool = False
    #: Request fields that the server has no place for; each is reported as lost.
    lacks: list[str] = []
    #: What ends an answer that has no terminal event: nothing does, or its last item being done.
    end: Literal["terminal", "items"] = "terminal"
    #: Whether an answer was cut by `max_output_tokens`: the server tells, or says "completed" and its usage tells.
    cut: Literal["told", "by_usage"] = "told"

    @property
    def wants_reasoning_back(self) -> bool:
        """Whether what a client left out of the history is worth looking up."""
        return self.sealed_reasoning


def wire_after_refusal(wire: ResponsesWire, model: str, refused: RefusedPart) -> ResponsesWire | None:
    """The options under which a model is not sent what the server refused; None: the request would be the same."""
    del model
    return replace(wire, no_reasoning_models=(WILDCARD,)) if refused == "encrypted_reasoning" else None
