"""Derive the profile of a server of Ollama's own API from the findings."""

from __future__ import annotations

from antiphon.probe.draft import ProfileDraft, Verdicts


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="ollama-native")
    draft.set_wire_if(verdicts.lacks("image"), images=False)
    draft.set_wire_if(verdicts.refuses("think"), thinking=False)
    draft.set_wire_if(verdicts.refuses("think.level"), levels=[])
    tools = verdicts.limit("limit.tools")
    if tools:
        draft.add_quirk("limit_tools", limit=tools)
    if verdicts.lacks("calls.paired"):
        draft.add_quirk("tool_history_as_text")
    return draft
