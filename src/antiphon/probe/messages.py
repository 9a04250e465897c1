"""Derive the profile of a server of the Messages API from the findings."""

from __future__ import annotations

from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.messages_steps import EFFORTS, FIELDS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="messages")
    draft.set_wire_if(verdicts.has("system.middle"), system="inline")
    draft.set_wire_if(verdicts.lacks("image"), images=False)
    draft.set_wire_if(verdicts.lacks("document"), documents=False)
    draft.set_wire_if(verdicts.has("tools.strict"), strict_tools=True)
    draft.set_wire_if(verdicts.has("counts"), counts_tokens=True)
    draft.set_wire_if(verdicts.has("thinking.unsigned"), unsigned_thinking=True)
    draft.set_wire_if(verdicts.refuses("samplings"), both_samplings=False)
    draft.set_wire_if(verdicts.has("cache.auto"), auto_cache=True)
    if verdicts.refuses("cache.control"):
        draft.add_quirk("strip_cache_control")
    draft.set_wire_if(verdicts.refuses("field.unknown"), extra_fields=[])
    draft.set_limits(verdicts)
    if verdicts.lacks("calls.paired"):
        draft.add_quirk("tool_history_as_text")
    if verdicts.has("format.output_config"):
        draft.set_wire_if(True, json_output="output_config")
    elif verdicts.has("format.output_format"):
        draft.set_wire_if(True, json_output="output_format")
    _conclude_thinking(verdicts, draft)
    draft.set_wire_if(True, fields=[name for name in FIELDS if not verdicts.refuses(f"field.{name}")])
    return draft


def _conclude_thinking(verdicts: Verdicts, draft: ProfileDraft) -> None:
    if verdicts.has("thinking.adaptive") and verdicts.has("effort.low"):
        draft.set_wire_if(
            True, thinking="adaptive", efforts=[effort for effort in EFFORTS if verdicts.has(f"effort.{effort}")]
        )
        draft.set_wire_if(verdicts.has("thinking.display"), thinking_display=True)
    elif verdicts.lacks("thinking.budget"):
        draft.set_wire_if(True, thinking="none")
