"""Writes the parts of a gemini candidate to the response writer as hub items.

The API's thoughts are summaries, so they become reasoning summaries. A signature is sealed with its maker's name
(RSN-2): inside the reasoning item of its thought, else in a reasoning item of its own. That item stands before a call,
and after a text, because a streamed text is signed at its end. Parts that only this dialect has become extension items
`gemini:name`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.server_turn import StreamOutcome
from antiphon.dialects.common.tool_names import SendableCalls, ToolNames
from antiphon.dialects.gemini.partial_calls import PartialCall
from antiphon.dialects.gemini.response_wire import (
    AnswerFunctionCallIn,
    AnswerPartIn,
    CandidateIn,
    CitationMetadataIn,
    GroundingMetadataIn,
    LogprobsResultIn,
    TokenIn,
)
from antiphon.dialects.gemini.wire import PREFIX
from antiphon.protocol.content import LogProb, TopLogProb, UrlCitation
from antiphon.protocol.items import UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import TextPieces
from antiphon.protocol.writer import ResponseWriter


class AnswerToHub:
    """Translates one answer: `add_candidate` for each piece or for the whole, then `finish`."""

    def __init__(
        self, writer: ResponseWriter, losses: Losses, names: ToolNames, new_id: Callable[[str], str], maker: str
    ) -> None:
        self._writer = writer
        self._losses = losses
        self._new_id = new_id
        self._maker = maker
        self._item_count = 0
        self._message_key: int | None = None
        self._reasoning_key: int | None = None
        self._thoughts = TextPieces()
        self._text_signature = ""  # of the open message, which may still receive citations
        self._call_by_id: dict[str, tuple[str, dict[str, Any]]] = {}  # name and arguments
        self._sendable_calls = SendableCalls("functionCall", names, losses, new_id)
        self._partial_call: PartialCall | None = None
        self._grounding: GroundingMetadataIn | None = None
        self._citations: CitationMetadataIn | None = None
        #: The writer's key of the open message while its text may be continued directly; else None.
        self.open_text_key: int | None = None

    def add_candidate(self, candidate: CandidateIn) -> None:
        """Add a piece of the answer."""
        tokens = _tokens_to_hub(candidate.logprobs_result) if candidate.logprobs_result is not None else []
        parts = (candidate.content and candidate.content.parts) or ()
        texts_left = sum(part.text is not None and not part.thought for part in parts) if tokens else 0
        for part in parts:
            if part.function_call is None:
                self._end_partial_call()
            if not part.thought and (part.text or (part.text is not None and tokens)):
                texts_left -= 1
                count = _count_tokens(part.text, tokens) if texts_left > 0 else len(tokens)
                self._add_text(part.text, tokens[:count] or None)
                tokens = tokens[count:]
            self._add_part(part)
        if tokens:
            self._losses.add(
                "logprobsResult", "the log probabilities of tokens outside the text", "Open Responses has no equivalent"
            )
        self._grounding = candidate.grounding_metadata or self._grounding
        self._citations = candidate.citation_metadata or self._citations

    def finish(self, outcome: StreamOutcome) -> None:
        """End the answer. Complete items are closed here; the others are closed with the response. A text is complete
        when its signature has arrived, even if the answer is not.
        """
        self._write_citations()
        self._end_partial_call(is_complete=outcome == "completed")
        if outcome == "completed" or self._text_signature:
            self._end_message()
            self._end_reasoning()

    # Parts

    def _add_part(self, part: AnswerPartIn) -> None:
        """Write everything of a part except its text."""
        signature = part.thought_signature or ""
        if part.function_call is not None:
            self._add_call(part.function_call, signature)
        elif part.thought:
            self._add_thought(part.text or "", signature)
        elif native_member := next((name for name in NATIVE_PARTS if getattr(part, name) is not None), None):
            self._add_native_part(NATIVE_PARTS[native_member], getattr(part, native_member), signature)
        elif signature:
            if self._text_signature:
                self._end_message()
            self._text_signature = signature
            self._update_open_text_key()
        elif part.text is None:
            self._losses.add("content.parts", "a part of an unknown kind", "Open Responses has no equivalent")

    def _add_text(self, text: str, tokens: list[LogProb] | None) -> None:
        if self._text_signature:
            self._end_message()
        if self._message_key is None:
            self._end_reasoning()
            self._message_key = self._next_key()
            self._update_open_text_key()
        self._writer.add_text(self._message_key, text, logprobs=tokens)

    def _add_thought(self, text: str, signature: str) -> None:
        if not text and not signature:
            return
        self._end_message()
        if self._reasoning_key is None:
            self._reasoning_key = self._next_key()
        if text:
            self._writer.add_summary(self._reasoning_key, text)
            self._thoughts.append(text)
        if signature:
            self._seal(self._reasoning_key, {"on": "thought", "signature": signature, "text": "".join(self._thoughts)})
            self._close_reasoning(self._reasoning_key)

    def _add_call(self, call: AnswerFunctionCallIn, signature: str) -> None:
        is_whole = not call.will_continue and not call.partial_args
        if is_whole and call.id and self._call_by_id.get(call.id) == (call.name, call.args or {}):
            return  # the server sent the same call again
        self._end_open_items(signature, "call")
        if self._partial_call is not None and self._partial_call.is_continued_by(call):
            self._partial_call.add_piece(call)
        else:
            self._end_partial_call()
            if is_whole:
                self._write_call(call.name or "", call.id or "", call.args or {})
                return
            self._partial_call = PartialCall(call, self._losses)
        self._writer.count_bytes(sum(len(piece.string_value or "") + 1 for piece in call.partial_args or ()))
        if not call.will_continue:
            self._end_partial_call()

    def _end_partial_call(self, *, is_complete: bool = True) -> None:
        """Write the call whose pieces were collected. A call that is not complete stays open."""
        call, self._partial_call = self._partial_call, None
        if call is not None:
            self._write_call(call.name, call.id, call.arguments(), is_complete=is_complete)

    def _write_call(self, name_on_wire: str, id: str, args: dict[str, Any], *, is_complete: bool = True) -> None:
        if not name_on_wire:
            self._losses.add("functionCall", "a call without a name")
            return
        self._call_by_id[id] = name_on_wire, args
        called = self._sendable_calls.tool(name_on_wire)
        key, call_id = self._next_key(), self._sendable_calls.id(id)
        arguments = msgspec.json.encode(args).decode()
        if called.kind == "custom":
            freeform_input = FreeformInput()
            self._writer.open_custom_call(key, name=called.name, call_id=call_id, namespace=called.namespace)
            self._writer.add_custom_input(key, freeform_input.feed(arguments) + freeform_input.finish())
            if freeform_input.left_over:
                self._losses.add(
                    "functionCall.args",
                    f"{freeform_input.left_over[:80]!r}",
                    "a custom tool accepts one string",
                )
        else:
            self._writer.open_call(key, name=called.name, call_id=call_id, namespace=called.namespace)
            self._writer.add_arguments(key, arguments)
        if is_complete:
            self._writer.close_item(key)

    def _add_native_part(self, name: str, value: Any, signature: str) -> None:
        """ITEM-5: write a part that only this dialect has as an extension item."""
        self._end_open_items(signature, "part")
        kind = PREFIX + name
        payload = (
            value
            if isinstance(value, dict)
            else {key: member for key, member in msgspec.to_builtins(value).items() if member is not None}
        )
        members = {"type": kind, "id": self._new_id("gemini"), "status": "completed", name: payload}
        self._writer.add_whole_item(self._next_key(), UnknownItem(kind=kind, raw=Raw(msgspec.json.encode(members))))

    def _end_open_items(self, signature: str, on: str) -> None:
        self._end_message()
        self._end_reasoning()
        if signature:
            self._add_signature_item(signature, on)

    # Ends

    def _end_message(self) -> None:
        """Close the open message and add its signature after it."""
        if self._message_key is not None:
            self._writer.close_item(self._message_key)
            self._message_key = None
        if self._text_signature:
            self._add_signature_item(self._text_signature, "text")
            self._text_signature = ""
        self._update_open_text_key()

    def _end_reasoning(self) -> None:
        """Seal a thought without a signature too. The seal names its maker, which does not need the thought back."""
        if self._reasoning_key is not None:
            self._seal(self._reasoning_key, {"on": "thought"})
            self._close_reasoning(self._reasoning_key)

    def _close_reasoning(self, key: int) -> None:
        self._writer.close_item(key)
        self._reasoning_key, self._thoughts = None, TextPieces()

    def _add_signature_item(self, signature: str, on: str) -> None:
        key = self._next_key()
        self._seal(key, {"on": on, "signature": signature})
        self._writer.close_item(key)

    def _seal(self, key: int, content: dict[str, Any]) -> None:
        self._writer.set_encrypted_content(key, seal_reasoning(self._maker, content))

    # Citations

    def _write_citations(self) -> None:
        """STR-11: write the sources, which arrive at the end and count bytes, as citations that count characters."""
        citations = [*_grounding_citations(self._grounding, self._losses), *_source_citations(self._citations)]
        if not citations:
            return
        if self._message_key is None:
            self._losses.add("groundingMetadata", "the sources of a text", "they arrived after the next item")
            return
        text = self._writer.open_text(self._message_key).encode()
        for start, end, url, title in citations:
            first, last = len(text[:start].decode("utf-8", "ignore")), len(text[:end].decode("utf-8", "ignore"))
            self._writer.add_annotation(
                self._message_key, UrlCitation(start_index=first, end_index=last, url=url, title=title)
            )

    # State

    def _next_key(self) -> int:
        self._item_count += 1
        return self._item_count

    def _update_open_text_key(self) -> None:
        self.open_text_key = None if self._text_signature else self._message_key


_Citation = tuple[int, int, str, str]  # start, end, URL, title


def _grounding_citations(grounding: GroundingMetadataIn | None, losses: Losses) -> list[_Citation]:
    if grounding is None:
        return []
    if grounding.web_search_queries:
        losses.add("groundingMetadata.webSearchQueries", "search queries", "Open Responses has no equivalent")
    chunks = grounding.grounding_chunks or []
    citations: list[_Citation] = []
    for support in grounding.grounding_supports or ():
        segment = support.segment
        for index in support.grounding_chunk_indices or ():
            web = chunks[index].web if 0 <= index < len(chunks) else None
            if web is None or segment is None:
                losses.add("groundingMetadata", "a source that is not a web page", "Open Responses has no equivalent")
            else:
                citations.append((segment.start_index or 0, segment.end_index or 0, web.uri or "", web.title or ""))
    if chunks and not citations:
        losses.add(
            "groundingMetadata.groundingChunks",
            "sources without a position in the text",
            "Open Responses has no equivalent",
        )
    return citations


def _source_citations(citations: CitationMetadataIn | None) -> list[_Citation]:
    if citations is None:
        return []
    return [
        (source.start_index or 0, source.end_index or 0, source.uri or "", source.title or "")
        for source in [*(citations.citation_sources or ()), *(citations.citations or ())]
    ]


def _tokens_to_hub(result: LogprobsResultIn) -> list[LogProb]:
    tops = [top.candidates or [] for top in result.top_candidates or ()]
    return [
        LogProb(
            token=chosen.token or "",
            logprob=_logprob_of(chosen),
            bytes=list((chosen.token or "").encode()),
            top_logprobs=[
                TopLogProb(token=top.token or "", logprob=_logprob_of(top), bytes=list((top.token or "").encode()))
                for top in (tops[index] if index < len(tops) else ())
            ],
        )
        for index, chosen in enumerate(result.chosen_candidates or ())
    ]


def _count_tokens(text: str, tokens: list[LogProb]) -> int:
    """Return how many of the first tokens a text has. A candidate lists the tokens of all its texts together."""
    length = count = 0
    while count < len(tokens) and length < len(text):
        length += len(tokens[count].token)
        count += 1
    return count


def _logprob_of(token: TokenIn) -> int | float:
    return MIN_LOGPROB if token.log_probability is None else token.log_probability


MIN_LOGPROB: Final = -9999.0  # this API family's value for a token of negligible probability
#: Parts that only this dialect has: our field name and the name on the wire.
NATIVE_PARTS: Final = {
    "inline_data": "inlineData",
    "file_data": "fileData",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
}
