"""Render a turn as a gemini server does: as parts, in the frames of a stream or in one answer.

A call is one whole part. A signature is on the first call after the thoughts, or else at the end: on an empty text in a
stream, on the last text of a whole answer. Real servers do the same.
"""

from __future__ import annotations

from typing import Any, Final, Literal, assert_never

from antiphon.testing.gemini.rules import prompt_chars
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.rules import parse_json
from antiphon.testing.script import (
    End,
    Finish,
    Pause,
    Raw,
    Reasoning,
    Redacted,
    Refusal,
    ScriptedTurn,
    ScriptedUsage,
    Step,
    Text,
    ToolCall,
    ToolCalls,
    TurnElement,
    Wait,
    usage_of,
)

UsageIn = Literal["every", "first", "last"]
Part = dict[str, Any]


class TurnRenderer:
    """Renders one turn as frames or as one answer."""

    def __init__(
        self,
        turn: ScriptedTurn,
        body: dict[str, Any],
        head: dict[str, Any],
        signatures: Signatures,
        *,
        must_sign: bool,
        gives_ids: bool,
    ) -> None:
        self._turn = turn
        self._body = body
        self._head = head
        self._signatures = signatures
        self._gives_ids = gives_ids
        self._must_sign = must_sign  # whether the next call, or else the end, is signed
        self._scripted_signature: str | None = None  # the signature, if the script gives one
        self._malformed_call: ToolCall | None = None
        #: The parts of each frame, and the steps between frames, in order.
        self._contents: list[list[Part] | Step] = []
        for element in turn.elements:
            self._add_element(element)

    def render_frames(self, usage_in: UsageIn) -> list[dict[str, Any] | Step]:
        """Return a frame for each piece, and a last one with the finish reason."""
        frames: list[dict[str, Any] | Step] = [
            self._render_candidate(content) if isinstance(content, list) else content for content in self._contents
        ]
        last = self._render_last_frame()
        if "candidates" in last or "promptFeedback" in last or ("usage" not in self._turn.omit and usage_in != "first"):
            frames.append(last)
        self._add_usage([frame for frame in frames if isinstance(frame, dict)], usage_in)
        return frames

    def render_one_frame(self) -> list[dict[str, Any] | Step]:
        """Return the whole answer in one frame, after all other steps."""
        return [*(content for content in self._contents if not isinstance(content, list)), self.render_answer()]

    def render_answer(self) -> dict[str, Any]:
        """Return the whole answer: texts are joined, and a final signature is on the text before it."""
        parts: list[Part] = []
        for part in [part for content in self._contents if isinstance(content, list) for part in content]:
            if parts and _continues(parts[-1], part):
                parts[-1] = {**part, "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        signature = self._signature_at_end()
        if signature and parts and _is_text(parts[-1]):
            parts[-1] = {**parts[-1], **signature}
        elif signature:
            parts.append({"text": "", **signature})
        answer = self._answer_without_candidates() or self._render_candidate(parts, self._finish_members())
        if "usage" not in self._turn.omit:
            answer["usageMetadata"] = self._usage()
        return answer

    def _add_element(self, element: TurnElement) -> None:
        match element:
            case Text() | Refusal():
                self._contents += [[{"text": piece}] for piece in element.pieces]
            case Reasoning():
                self._contents += [[{"text": piece, "thought": True}] for piece in element.pieces]
                self._must_sign, self._scripted_signature = True, element.signature
            case Redacted():
                self._must_sign, self._scripted_signature = True, element.data
            case ToolCalls():
                calls = [part for call in element.calls for part in self._render_call(call)]
                if calls:
                    self._contents.append(calls)
            case Raw():
                self._contents.append(element.data)
            case Pause() | Wait() | End():
                self._contents.append(element)
            case Finish() | ScriptedUsage():
                pass  # rendered at the end
            case _ as never:
                assert_never(never)

    def _render_call(self, call: ToolCall) -> list[Part]:
        """Return a call as one part; empty if its arguments are not an object, which this dialect cannot express."""
        arguments = "".join(call.pieces)
        args = {"input": arguments} if call.kind == "custom" else parse_json(arguments or "{}")
        if not isinstance(args, dict):
            self._malformed_call = call
            return []
        id_member = {"id": call.id} if self._gives_ids else {}
        part: Part = {"functionCall": {**id_member, "name": call.name, "args": args}}
        # Only the first of parallel calls is signed.
        return [{**part, **self._signature_for(part)}]

    def _signature_for(self, part: Part) -> dict[str, str]:
        if not self._must_sign:
            return {}
        signature = (
            self._signatures.make_signature(part)
            if self._scripted_signature is None
            else self._signatures.accept_scripted(self._scripted_signature)
        )
        self._must_sign, self._scripted_signature = False, None
        return {"thoughtSignature": signature}

    def _signature_at_end(self) -> dict[str, str]:
        return self._signature_for({"text": ""}) if self._has_content() or self._scripted_signature is not None else {}

    def _has_content(self) -> bool:
        return any(isinstance(content, list) for content in self._contents)

    def _render_last_frame(self) -> dict[str, Any]:
        """Return the last frame: an empty text, perhaps signed, and the finish reason; without a reason, only the
        head."""
        signature = self._signature_at_end()
        blocked = self._answer_without_candidates()
        if blocked is not None:
            return blocked
        if "finish" in self._turn.omit and not signature:
            return dict(self._head)
        return self._render_candidate(
            [{"text": "", **signature}] if self._has_content() or signature else [], self._finish_members()
        )

    def _answer_without_candidates(self) -> dict[str, Any] | None:
        """Return the answer without candidates: the prompt was blocked, or the turn is empty. Else None."""
        reason = self._finish_reason()
        if reason.startswith(BLOCKED):
            return {"promptFeedback": {"blockReason": reason.removeprefix(BLOCKED)}, **self._head}
        if "finish" in self._turn.omit and not self._has_content():
            return {"candidates": [], **self._head}
        return None

    def _render_candidate(self, parts: list[Part], end: dict[str, Any] | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}} if parts else {}
        candidate.update({**(end or {}), "index": 0})
        texts = [part["text"] for part in parts if part.get("text") and not part.get("thought")]
        if texts and self._generation_config().get("responseLogprobs"):
            candidate["logprobsResult"] = self._logprobs(self._text_pieces() if end is not None else texts)
        return {"candidates": [candidate], **self._head}

    def _finish_members(self) -> dict[str, Any]:
        if "finish" in self._turn.omit:
            return {}
        reason = self._finish_reason()
        if reason != MALFORMED:
            return {"finishReason": reason}
        call = self._malformed_call
        call_text = f"{call.name}({''.join(call.pieces)})" if call else "print("
        return {"finishReason": reason, "finishMessage": f"Malformed function call: {call_text}"}

    def _finish_reason(self) -> str:
        reasons = [element.reason for element in self._turn.elements if isinstance(element, Finish)]
        if reasons:
            return FINISH_REASONS.get(reasons[-1], reasons[-1])
        # A refusal is plain text here; only the finish reason marks it.
        has_refusal = any(isinstance(element, Refusal) for element in self._turn.elements)
        return MALFORMED if self._malformed_call else "SAFETY" if has_refusal else "STOP"

    def _add_usage(self, frames: list[dict[str, Any]], usage_in: UsageIn) -> None:
        if "usage" in self._turn.omit:
            return
        if usage_in == "every":
            # Before the last frame, the counts cover the answer so far.
            for frame_number, frame in enumerate(frames[:-1], 1):
                frame["usageMetadata"] = self._usage(so_far=frame_number)
        frames[0 if usage_in == "first" else -1]["usageMetadata"] = self._usage()

    def _usage(self, so_far: int | None = None) -> dict[str, Any]:
        usage = usage_of(self._turn, prompt_chars(self._body))
        output_tokens = (
            usage.completion - usage.reasoning if so_far is None else min(so_far, usage.completion - usage.reasoning)
        )
        counts = {
            "promptTokenCount": usage.prompt,
            "candidatesTokenCount": output_tokens,
            "totalTokenCount": usage.prompt + usage.reasoning + output_tokens,
        }
        if self._finish_reason().startswith(BLOCKED):
            del counts["candidatesTokenCount"]
        # Thoughts are counted apart from the output, cached tokens inside the prompt; zero counts are left out.
        optional_counts = {"thoughtsTokenCount": usage.reasoning, "cachedContentTokenCount": usage.cached}
        return {**counts, **{name: count for name, count in optional_counts.items() if count}}

    def _text_pieces(self) -> list[str]:
        return [
            piece for element in self._turn.elements if isinstance(element, Text | Refusal) for piece in element.pieces
        ]

    def _logprobs(self, pieces: list[str]) -> dict[str, Any]:
        """Return each piece as a token; the alternatives repeat the same token."""
        tokens = [{"token": piece, "tokenId": index, "logProbability": -0.25} for index, piece in enumerate(pieces)]
        alternative_count = self._generation_config().get("logprobs") or 0
        return {
            "chosenCandidates": tokens,
            "topCandidates": [{"candidates": [token] * alternative_count} for token in tokens],
        }

    def _generation_config(self) -> dict[str, Any]:
        return dict(self._body.get("generationConfig") or {})


def _is_text(part: Part) -> bool:
    return "text" in part and not part.get("thought")


def _continues(previous_part: Part, part: Part) -> bool:
    return "text" in previous_part and "text" in part and previous_part.get("thought") == part.get("thought")


BLOCKED: Final = "blocked:"
MALFORMED: Final = "MALFORMED_FUNCTION_CALL"
FINISH_REASONS: Final = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
