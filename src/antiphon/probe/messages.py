"""What the findings about a server of the Messages API mean for its profile."""

from __future__ import annotations

from antiphon.probe.draft import Draft, Known
from antiphon.probe.messages_steps import EFFORTS, FIELDS


def conclude(known: Known) -> Draft:
    """The quirks and wire options that make up for what the server does not take."""
    draft = Draft(extends="messages")
    draft.wire_if(known.has("system.middle"), system="inline")
    draft.wire_if(known.lacks("image"), images=False)
    draft.wire_if(known.lacks("document"), documents=False)
    draft.wire_if(known.has("tools.strict"), strict_tools=True)
    draft.wire_if(known.has("counts"), counts_tokens=True)
    draft.wire_if(known.has("thinking.unsigned"), unsigned_thinking=True)
    draft.wire_if(known.refuses("samplings"), both_samplings=False)
    draft.wire_if(known.has("cache.auto"), auto_cache=True)
    if known.lacks("calls.paired"):
        draft.quirk("tool_history_as_text")
    if known.has("format.output_config"):
        draft.wire_if(True, json_output="output_config")
    elif known.has("format.output_format"):
        draft.wire_if(True, json_output="output_format")
    _thinking(known, draft)
    draft.wire_if(True, fields=[name for name in FIELDS if not known.refuses(f"field.{name}")])
    return draft


def _thinking(known: Known, draft: Draft) -> None:
    if known.has("thinking.adaptive") and known.has("effort.low"):
        draft.wire_if(True, thinking="adaptive", efforts=[word for word in EFFORTS if known.has(f"effort.{word}")])
        draft.wire_if(known.has("thinking.display"), thinking_display=True)
    elif known.lacks("thinking.budget"):
        draft.wire_if(True, thinking="none")
