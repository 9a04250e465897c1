"""Derive the profile of a server of Chat Completions from the findings."""

from __future__ import annotations

from antiphon.probe.chat_steps import FIELDS
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.samples import EFFORTS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="chat")
    draft.set_wire_if(
        verdicts.lacks("limit.max_tokens") and verdicts.has("limit.max_completion_tokens"),
        max_tokens="max_completion_tokens",
    )
    draft.set_wire_if(verdicts.has("developer"), developer="developer")
    draft.set_wire_if(verdicts.lacks("system.middle"), system="first")
    draft.set_wire_if(verdicts.form == "parts", text_content="parts")
    draft.set_wire_if(verdicts.lacks("image"), images=False)
    draft.set_wire_if(verdicts.has("counts"), counts_tokens=True)
    draft.set_wire_if(verdicts.refuses("stream.usage"), stream_usage=False)
    _conclude_history(verdicts, draft)
    _conclude_tools(verdicts, draft)
    fields = [name for name in (*FIELDS, "parallel_tool_calls") if not verdicts.refuses(f"field.{name}")]
    efforts = verdicts.accepted_words("effort", EFFORTS)
    if not verdicts.refuses("effort.low"):
        fields.append("reasoning_effort")
        draft.set_wire_if(bool(efforts), efforts=efforts)
    draft.set_wire_if(True, fields=fields)
    draft.set_limits(verdicts)
    draft.set_wire_if(verdicts.refuses("field.unknown"), extra_fields=[])
    _conclude_cache(verdicts, draft)
    return draft


def _conclude_cache(verdicts: Verdicts, draft: ProfileDraft) -> None:
    """A server that refuses unknown members knows those that it accepts; any other may only ignore them."""
    if verdicts.refuses("part.unknown") and verdicts.has("cache.control"):
        draft.set_wire_if(True, cache_marks="cache_control")
    elif verdicts.refuses("part.unknown") and verdicts.has("cache.breakpoint"):
        draft.set_wire_if(True, cache_marks="prompt_cache_breakpoint")


def _conclude_history(verdicts: Verdicts, draft: ProfileDraft) -> None:
    experiments_by_form = {"null": "calls.null", "empty": "calls.paired", "absent": "calls.absent"}
    accepted_forms = [form for form, id in experiments_by_form.items() if verdicts.has(id)]
    if accepted_forms:
        draft.set_wire_if(accepted_forms[0] != "null", empty_content=accepted_forms[0])
    elif verdicts.has("calls.reasoning") or verdicts.has("calls.thought"):
        # It accepts no call in the history without the reasoning of the model.
        field = "reasoning_content" if verdicts.has("calls.reasoning") else "reasoning"
        draft.set_wire_if(True, reasoning_field=field, reasoning_history="all")
    elif verdicts.was_tried("calls.paired"):
        draft.add_quirk("tool_history_as_text")


def _conclude_tools(verdicts: Verdicts, draft: ProfileDraft) -> None:
    draft.set_wire_if(verdicts.lacks("tools"), free_tools=False)
    draft.set_wire_if(verdicts.lacks("tools.strict"), strict_tools=False)
    if verdicts.lacks("format.schema"):
        draft.set_wire_if(True, json_output="json_object" if verdicts.has("format.json") else "none")
    if verdicts.lacks("tools.required") or verdicts.lacks("tools.named"):
        draft.set_wire_if(True, forced_tools="schema" if verdicts.has("format.schema") else "none")
