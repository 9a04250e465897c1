"""What the findings about a server of Chat Completions mean for its profile."""

from __future__ import annotations

from antiphon.probe.chat_steps import FIELDS
from antiphon.probe.draft import Draft, Known
from antiphon.probe.samples import EFFORTS


def conclude(known: Known) -> Draft:
    """The quirks and wire options that make up for what the server does not take."""
    draft = Draft(extends="chat")
    draft.wire_if(known.lacks("limit.max_tokens") and known.has("limit.max_completion_tokens"), max_tokens="max_completion_tokens")
    draft.wire_if(known.has("developer"), developer="developer")
    draft.wire_if(known.lacks("system.middle"), system="first")
    draft.wire_if(known.form == "parts", text_content="parts")
    draft.wire_if(known.lacks("image"), images=False)
    draft.wire_if(known.has("counts"), counts_tokens=True)
    draft.wire_if(known.refuses("stream.usage"), stream_usage=False)
    _history(known, draft)
    _tools(known, draft)
    fields = [name for name in (*FIELDS, "parallel_tool_calls") if not known.refuses(f"field.{name}")]
    words = known.words("effort", EFFORTS)
    if not known.refuses("effort.low"):
        fields.append("reasoning_effort")
        draft.wire_if(bool(words), efforts=words)
    draft.wire_if(True, fields=fields)
    return draft


def _history(known: Known, draft: Draft) -> None:
    empty = {"null": "calls.null", "empty": "calls.paired", "absent": "calls.absent"}
    good = [word for word, id in empty.items() if known.has(id)]
    if good:
        draft.wire_if(good[0] != "null", empty_content=good[0])
    elif known.has("calls.reasoning") or known.has("calls.thought"):
        # It takes no call back without what the model thought of it.
        field = "reasoning_content" if known.has("calls.reasoning") else "reasoning"
        draft.wire_if(True, reasoning_field=field, reasoning_history="all")
    elif known.was_tried("calls.paired"):
        draft.quirk("tool_history_as_text")


def _tools(known: Known, draft: Draft) -> None:
    draft.wire_if(known.lacks("tools"), free_tools=False)
    draft.wire_if(known.lacks("tools.strict"), strict_tools=False)
    if known.lacks("format.schema"):
        draft.wire_if(True, json_output="json_object" if known.has("format.json") else "none")
    if known.lacks("tools.required") or known.lacks("tools.named"):
        draft.wire_if(True, forced_tools="schema" if known.has("format.schema") else "none")
