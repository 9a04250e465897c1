"""Wire shapes of gemini answers, for reading and for writing. A stream frame and a whole answer have the same shape.

The shapes for reading are lenient: every field may be absent or null, and unused fields are not decoded.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.protocol.content import Number

# Shapes for reading. They are short-lived, numerous and hold no cycles, so the garbage collector does not track them.


class AnswerBlobIn(Struct, frozen=True, gc=False, rename="camel"):
    mime_type: str | None = None
    data: str | None = None
    display_name: str | None = None


class AnswerFileDataIn(Struct, frozen=True, gc=False, rename="camel"):
    mime_type: str | None = None
    file_uri: str | None = None


class PartialArgIn(Struct, frozen=True, gc=False, rename="camel"):
    """A piece of the arguments of a call. The API writes a null value as null or as the name of its enum."""

    json_path: str | None = None
    string_value: str | None = None
    number_value: Number | None = None
    bool_value: bool | None = None
    null_value: str | None | UnsetType = UNSET
    will_continue: bool | None = None  # the rest of the string follows


class AnswerFunctionCallIn(Struct, frozen=True, gc=False, rename="camel"):
    id: str | None = None
    name: str | None = None
    args: dict[str, Any] | None = None
    partial_args: list[PartialArgIn] | None = None
    will_continue: bool | None = None  # the rest of the call follows in another part


class AnswerPartIn(Struct, frozen=True, gc=False, rename="camel"):
    """One part of an answer: exactly one kind of content, and possibly a signature."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: AnswerFunctionCallIn | None = None
    inline_data: AnswerBlobIn | None = None
    file_data: AnswerFileDataIn | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None


class AnswerContentIn(Struct, frozen=True, gc=False, rename="camel"):
    parts: list[AnswerPartIn] | None = None
    role: str | None = None


class TokenIn(Struct, frozen=True, gc=False, rename="camel"):
    token: str | None = None
    log_probability: Number | None = None


class TopCandidatesIn(Struct, frozen=True, gc=False, rename="camel"):
    candidates: list[TokenIn] | None = None


class LogprobsResultIn(Struct, frozen=True, gc=False, rename="camel"):
    chosen_candidates: list[TokenIn] | None = None
    top_candidates: list[TopCandidatesIn] | None = None


class CitationSourceIn(Struct, frozen=True, gc=False, rename="camel"):
    start_index: int | None = None  # in bytes of the text
    end_index: int | None = None
    uri: str | None = None
    title: str | None = None


class CitationMetadataIn(Struct, frozen=True, gc=False, rename="camel"):
    """The sources of a text. Servers use one of two names for the list."""

    citation_sources: list[CitationSourceIn] | None = None
    citations: list[CitationSourceIn] | None = None


class WebChunkIn(Struct, frozen=True, gc=False, rename="camel"):
    uri: str | None = None
    title: str | None = None


class GroundingChunkIn(Struct, frozen=True, gc=False, rename="camel"):
    web: WebChunkIn | None = None


class SegmentIn(Struct, frozen=True, gc=False, rename="camel"):
    part_index: int | None = None
    start_index: int | None = None  # in bytes of the part's text
    end_index: int | None = None
    text: str | None = None


class GroundingSupportIn(Struct, frozen=True, gc=False, rename="camel"):
    segment: SegmentIn | None = None
    grounding_chunk_indices: list[int] | None = None


class GroundingMetadataIn(Struct, frozen=True, gc=False, rename="camel"):
    grounding_chunks: list[GroundingChunkIn] | None = None
    grounding_supports: list[GroundingSupportIn] | None = None
    web_search_queries: list[str] | None = None


class CandidateIn(Struct, frozen=True, gc=False, rename="camel"):
    content: AnswerContentIn | None = None
    finish_reason: str | int | None = None  # a word, or the number of the word in the enum
    finish_message: str | None = None
    index: int | None = None
    logprobs_result: LogprobsResultIn | None = None
    citation_metadata: CitationMetadataIn | None = None
    grounding_metadata: GroundingMetadataIn | None = None


class PromptFeedbackIn(Struct, frozen=True, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class UsageIn(Struct, frozen=True, gc=False, rename="camel"):
    """Token counts. The prompt count includes cached tokens; the candidates count excludes thoughts (REQ-4)."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None
    traffic_type: str | int | None = None  # some servers send enumerations as numbers


class Chunk(Struct, frozen=True, gc=False, rename="camel"):
    """One frame of a stream, or a whole answer."""

    candidates: list[CandidateIn | None] | None = None
    prompt_feedback: PromptFeedbackIn | None = None
    usage_metadata: UsageIn | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


# The common frame: a piece of the candidate's text and, possibly, usage. Decoding refuses any other member that `Chunk`
# would read, so that no code has to check each member.


class TextPart(Struct, frozen=True, gc=False, rename="camel"):
    text: str
    thought: Literal[False] | None = None
    thought_signature: None = None
    function_call: None = None
    inline_data: None = None
    file_data: None = None
    executable_code: None = None
    code_execution_result: None = None
    tool_call: None = None
    tool_response: None = None


class TextContent(Struct, frozen=True, gc=False, rename="camel"):
    parts: tuple[TextPart]


class TextCandidate(Struct, frozen=True, gc=False, rename="camel"):
    content: TextContent
    finish_reason: None = None
    index: Literal[0] = 0
    logprobs_result: None = None
    citation_metadata: None = None
    grounding_metadata: None = None


class TextChunk(Struct, frozen=True, gc=False, rename="camel"):
    candidates: tuple[TextCandidate]
    usage_metadata: UsageIn | None = None
    prompt_feedback: None = None
    error: None = None


# Shapes for writing.


class AnswerFunctionCallOut(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str
    args: Raw


class AnswerPartOut(Struct, frozen=True, kw_only=True, rename="camel"):
    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    function_call: AnswerFunctionCallOut | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class AnswerContentOut(Struct, frozen=True, kw_only=True, rename="camel"):
    parts: list[AnswerPartOut | dict[str, Raw]]  # a dict is a part of a kind that only this dialect has, sent unchanged
    role: Literal["model"] = "model"


class TokenOut(Struct, frozen=True, kw_only=True, rename="camel"):
    token: str
    log_probability: Number


class TopCandidatesOut(Struct, frozen=True, kw_only=True, rename="camel"):
    candidates: list[TokenOut]


class LogprobsResultOut(Struct, frozen=True, kw_only=True, rename="camel"):
    chosen_candidates: list[TokenOut]
    top_candidates: list[TopCandidatesOut]


class CitationSourceOut(Struct, frozen=True, kw_only=True, rename="camel"):
    start_index: int
    end_index: int
    uri: str
    title: str


class CitationMetadataOut(Struct, frozen=True, kw_only=True, rename="camel"):
    citation_sources: list[CitationSourceOut]


class CandidateOut(Struct, frozen=True, kw_only=True, rename="camel"):
    content: AnswerContentOut
    finish_reason: str | UnsetType = UNSET
    index: int = 0
    logprobs_result: LogprobsResultOut | UnsetType = UNSET
    citation_metadata: CitationMetadataOut | UnsetType = UNSET


class UsageOut(Struct, frozen=True, kw_only=True, rename="camel"):
    prompt_token_count: int
    candidates_token_count: int
    total_token_count: int
    cached_content_token_count: int | UnsetType = UNSET
    thoughts_token_count: int | UnsetType = UNSET
    traffic_type: str | UnsetType = UNSET


class AnswerOut(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole answer, or one frame of a stream."""

    candidates: list[CandidateOut]
    usage_metadata: UsageOut | UnsetType = UNSET
    model_version: str
    response_id: str


class ErrorOut(Struct, frozen=True, kw_only=True):
    """The error object of this API family."""

    code: int
    message: str
    status: str
    details: list[dict[str, Any]] | UnsetType = UNSET


class ErrorBodyOut(Struct, frozen=True, kw_only=True):
    error: ErrorOut
