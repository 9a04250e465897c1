"""Derive the profile of a server of the Gemini API from the findings."""

from __future__ import annotations

from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.gemini_steps import FIELDS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="gemini")
    draft.set_wire_if(verdicts.has("calls.ids"), call_ids=True)
    draft.set_wire_if(verdicts.has("model.last"), ends_with_model=True)
    draft.set_wire_if(verdicts.lacks("counts"), counts_tokens=False)
    draft.set_limits(verdicts)
    if verdicts.lacks("calls.paired") and not verdicts.has("calls.ids"):
        draft.add_quirk("tool_history_as_text")
    if verdicts.lacks("image"):
        draft.add_quirk("media_as_notes" if verdicts.lacks("file") else "images_as_notes")
    elif verdicts.lacks("file"):
        draft.add_quirk("files_as_notes")
    draft.set_wire_if(verdicts.lacks("tools") and verdicts.has("tools.openapi"), schemas="openapi")
    if verdicts.lacks("format.schema") and not verdicts.has("format.openapi"):
        draft.set_wire_if(True, json_output="json_object" if verdicts.has("format.json") else "none")
    elif verdicts.lacks("format.schema"):
        draft.set_wire_if(True, schemas="openapi")
    if verdicts.has("thinking.level"):
        draft.set_wire_if(True, thinking="level")
    elif verdicts.lacks("thinking.budget"):
        draft.set_wire_if(True, thinking="none")
    accepted_fields = [name for name in FIELDS if not verdicts.refuses(f"field.{name}")]
    accepted_fields += ["logprobs"] if "responseLogprobs" in accepted_fields else []
    draft.set_wire_if(
        True, fields=[*accepted_fields, *(["maxOutputTokens"] if not verdicts.refuses("limit.maxOutputTokens") else [])]
    )
    return draft
