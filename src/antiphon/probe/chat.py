"""Derive the profile of a server of Chat Completions from the findings."""

from __future__ import annotations

from antiphon.probe.chat_steps import FIELDS
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.samples import EFFORTS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="chat")
    draft.wire_if(
        verdicts.lacks("limit.max_tokens") and verdicts.has("limit.max_completion_tokens"),
        max_tokens="max_completion_tokens",
    )
    draft.wire_if(verdicts.has("developer"), developer="developer")
    draft.wire_if(verdicts.lacks("system.middle"), system="first")
    draft.wire_if(verdicts.form == "parts", text_content="parts")
    draft.wire_if(verdicts.lacks("image"), images=False)
    draft.wire_if(verdicts.has("counts"), counts_tokens=True)
    draft.wire_if(verdicts.refuses("stream.usage"), stream_usage=False)
    _history(verdicts, draft)
    _tools(verdicts, draft)
    fields = [name for name in (*FIELDS, "parallel_tool_calls") if not verdicts.refuses(f"field.{name}")]
    words = verdicts.words("effort", EFFORTS)
    if not verdicts.refuses("effort.low"):
        fields.append("reasoning_effort")
        draft.wire_if(bool(words), efforts=words)
    draft.wire_if(True, fields=fields)
    return draft


def _history(verdicts: Verdicts, draft: ProfileDraft) -> None:
    empty = {"null": "calls.null", "empty": "calls.paired", "absent": "calls.absent"}
    good = [word for word, id in empty.items() if verdicts.has(id)]
    if good:
        draft.wire_if(good[0] != "null", empty_content=good[0])
    elif verdicts.has("calls.reasoning") or verdicts.has("calls.thought"):
        # It takes no call back without what the model thought of it.
        field = "reasoning_content" if verdicts.has("calls.reasoning") else "reasoning"
        draft.wire_if(True, reasoning_field=field, reasoning_history="all")
    elif verdicts.was_tried("calls.paired"):
        draft.quirk("tool_history_as_text")


def _tools(verdicts: Verdicts, draft: ProfileDraft) -> None:
    draft.wire_if(verdicts.lacks("tools"), free_tools=False)
    draft.wire_if(verdicts.lacks("tools.strict"), strict_tools=False)
    if verdicts.lacks("format.schema"):
        draft.wire_if(True, json_output="json_object" if verdicts.has("format.json") else "none")
    if verdicts.lacks("tools.required") or verdicts.lacks("tools.named"):
        draft.wire_if(True, forced_tools="schema" if verdicts.has("format.schema") else "none")
