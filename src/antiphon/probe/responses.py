"""Derive the profile of a server of the Responses API from the findings."""

from __future__ import annotations

from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.responses_steps import FIELDS
from antiphon.probe.samples import EFFORTS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="open-responses")
    _roles(verdicts, draft)
    _history(verdicts, draft)
    if verdicts.form == "string":
        draft.quirk("media_as_notes")  # what is no text needs parts
        draft.quirk("parts_as_strings")
    elif verdicts.lacks("input.string") or verdicts.lacks("user.string"):
        roles = ["user", "system", "developer"]
        draft.quirk("strings_as_parts", **({"roles": roles} if "assistant_as_string" in draft.quirks else {}))
    if verdicts.lacks("image") and verdicts.lacks("file"):
        draft.quirk("media_as_notes")
    elif verdicts.lacks("image"):
        draft.quirk("images_as_notes")
    elif verdicts.lacks("file"):
        draft.quirk("files_as_notes")
    if verdicts.lacks("item.ids"):
        draft.quirk("drop_item_ids")
    if verdicts.lacks("item.cache_control"):
        draft.quirk("strip_cache_control")
    draft.wire_if(verdicts.lacks("item.status"), status_fields="drop")
    draft.wire_if(verdicts.lacks("item.phase"), phase="drop")
    draft.wire_if(verdicts.lacks("item.unknown"), unknown_items="drop")
    draft.wire_if(verdicts.lacks("tools.custom") or verdicts.lacks("item.custom-call"), extension_tools="flatten")
    draft.wire_if(verdicts.has("counts"), counts_tokens=True)
    draft.wire_if(verdicts.lacks("cut"), cut="by_usage")
    _settings(verdicts, draft)
    return draft


def _roles(verdicts: Verdicts, draft: ProfileDraft) -> None:
    system, developer = verdicts.has("system"), verdicts.has("developer")
    if verdicts.lacks("instructions") and (system or developer):
        draft.quirk("instructions_to_system", **({} if system else {"role": "developer"}))
    if not developer and verdicts.was_tried("developer"):
        draft.quirk("developer_as_system")
    if not system and verdicts.was_tried("system"):
        draft.quirk("system_as_developer") if developer else draft.quirk("system_to_instructions", move="all")
    elif verdicts.lacks("system.middle") and not verdicts.lacks("instructions"):
        draft.quirk("system_to_instructions", move="all")


def _history(verdicts: Verdicts, draft: ProfileDraft) -> None:
    if verdicts.lacks("calls.paired"):
        draft.quirk("tool_results_in_user_messages" if verdicts.has("calls.blocks") else "tool_history_as_text")
    if (
        verdicts.lacks("assistant.output_text")
        and not verdicts.has("assistant.string")
        and verdicts.has("assistant.input_text")
    ):
        draft.wire_if(True, assistant_content="input_text")
    elif verdicts.has("assistant.string") and (
        verdicts.lacks("assistant.output_text") or verdicts.lacks("assistant.refusal")
    ):
        draft.quirk("assistant_as_string")
    if verdicts.lacks("reasoning.content"):
        draft.quirk("drop_reasoning")
    elif verdicts.lacks("reasoning.summary"):
        draft.quirk("open_reasoning")


def _settings(verdicts: Verdicts, draft: ProfileDraft) -> None:
    lacks = [name for name in FIELDS if verdicts.refuses(f"field.{name}")]
    lacks += ["max_output_tokens"] if verdicts.lacks("limit.max_output_tokens") else []
    lacks += ["tool_choice"] if verdicts.refuses("tools.required") and verdicts.refuses("tools.named") else []
    lacks += ["text.format"] if verdicts.lacks("format.schema") else []
    words = verdicts.words("effort", EFFORTS)
    if verdicts.refuses("effort.low"):
        lacks.append("reasoning")
    elif words:
        draft.wire_if(True, efforts=words)
    draft.wire_if(bool(lacks), lacks=sorted(lacks))
