"""What the findings about a server of the Responses API mean for its profile."""

from __future__ import annotations

from antiphon.probe.draft import Draft, Known
from antiphon.probe.responses_steps import FIELDS
from antiphon.probe.samples import EFFORTS


def conclude(known: Known) -> Draft:
    """The quirks and wire options that make up for what the server does not take."""
    draft = Draft(extends="open-responses")
    _roles(known, draft)
    _history(known, draft)
    if known.form == "string":
        draft.quirk("media_as_notes")  # what is no text needs parts
        draft.quirk("parts_as_strings")
    elif known.lacks("input.string") or known.lacks("user.string"):
        roles = ["user", "system", "developer"]
        draft.quirk("strings_as_parts", **({"roles": roles} if "assistant_as_string" in draft.quirks else {}))
    if known.lacks("image") and known.lacks("file"):
        draft.quirk("media_as_notes")
    elif known.lacks("image"):
        draft.quirk("images_as_notes")
    elif known.lacks("file"):
        draft.quirk("files_as_notes")
    if known.lacks("item.ids"):
        draft.quirk("drop_item_ids")
    if known.lacks("item.cache_control"):
        draft.quirk("strip_cache_control")
    draft.wire_if(known.lacks("item.status"), status_fields="drop")
    draft.wire_if(known.lacks("item.phase"), phase="drop")
    draft.wire_if(known.lacks("item.unknown"), unknown_items="drop")
    draft.wire_if(known.lacks("tools.custom") or known.lacks("item.custom-call"), extension_tools="flatten")
    draft.wire_if(known.has("counts"), counts_tokens=True)
    draft.wire_if(known.lacks("cut"), cut="by_usage")
    _settings(known, draft)
    return draft


def _roles(known: Known, draft: Draft) -> None:
    system, developer = known.has("system"), known.has("developer")
    if known.lacks("instructions") and (system or developer):
        draft.quirk("instructions_to_system", **({} if system else {"role": "developer"}))
    if not developer and known.was_tried("developer"):
        draft.quirk("developer_as_system")
    if not system and known.was_tried("system"):
        draft.quirk("system_as_developer") if developer else draft.quirk("system_to_instructions", move="all")
    elif known.lacks("system.middle") and not known.lacks("instructions"):
        draft.quirk("system_to_instructions", move="all")


def _history(known: Known, draft: Draft) -> None:
    if known.lacks("calls.paired"):
        draft.quirk("tool_results_in_user_messages" if known.has("calls.blocks") else "tool_history_as_text")
    if known.lacks("assistant.output_text") and not known.has("assistant.string") and known.has("assistant.input_text"):
        draft.wire_if(True, assistant_content="input_text")
    elif known.has("assistant.string") and (known.lacks("assistant.output_text") or known.lacks("assistant.refusal")):
        draft.quirk("assistant_as_string")
    if known.lacks("reasoning.content"):
        draft.quirk("drop_reasoning")
    elif known.lacks("reasoning.summary"):
        draft.quirk("open_reasoning")


def _settings(known: Known, draft: Draft) -> None:
    lacks = [name for name in FIELDS if known.refuses(f"field.{name}")]
    lacks += ["max_output_tokens"] if known.lacks("limit.max_output_tokens") else []
    lacks += ["tool_choice"] if known.refuses("tools.required") and known.refuses("tools.named") else []
    lacks += ["text.format"] if known.lacks("format.schema") else []
    words = known.words("effort", EFFORTS)
    if known.refuses("effort.low"):
        lacks.append("reasoning")
    elif words:
        draft.wire_if(True, efforts=words)
    draft.wire_if(bool(lacks), lacks=sorted(lacks))
