"""What the findings about a server of the Gemini API mean for its profile."""

from __future__ import annotations

from antiphon.probe.draft import Draft, Known
from antiphon.probe.gemini_steps import FIELDS


def conclude(known: Known) -> Draft:
    """The quirks and wire options that make up for what the server does not take."""
    draft = Draft(extends="gemini")
    draft.wire_if(known.has("calls.ids"), call_ids=True)
    draft.wire_if(known.has("model.last"), ends_with_model=True)
    draft.wire_if(known.lacks("counts"), counts_tokens=False)
    if known.lacks("calls.paired") and not known.has("calls.ids"):
        draft.quirk("tool_history_as_text")
    if known.lacks("image"):
        draft.quirk("media_as_notes" if known.lacks("file") else "images_as_notes")
    elif known.lacks("file"):
        draft.quirk("files_as_notes")
    draft.wire_if(known.lacks("tools") and known.has("tools.openapi"), schemas="openapi")
    if known.lacks("format.schema") and not known.has("format.openapi"):
        draft.wire_if(True, json_output="json_object" if known.has("format.json") else "none")
    elif known.lacks("format.schema"):
        draft.wire_if(True, schemas="openapi")
    if known.has("thinking.level"):
        draft.wire_if(True, thinking="level")
    elif known.lacks("thinking.budget"):
        draft.wire_if(True, thinking="none")
    taken = [name for name in FIELDS if not known.refuses(f"field.{name}")]
    taken += ["logprobs"] if "responseLogprobs" in taken else []
    draft.wire_if(True, fields=[*taken, *(["maxOutputTokens"] if not known.refuses("limit.maxOutputTokens") else [])])
    return draft
