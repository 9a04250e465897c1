"""Derive the profile of a server of the Responses API from the findings."""

from __future__ import annotations

from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.responses_steps import FIELDS
from antiphon.probe.samples import EFFORTS


def conclude(verdicts: Verdicts) -> ProfileDraft:
    """Return the quirks and wire options for what the server does not accept."""
    draft = ProfileDraft(extends="open-responses")
    _conclude_roles(verdicts, draft)
    _conclude_history(verdicts, draft)
    if verdicts.form == "string":
        draft.add_quirk("media_as_notes")  # images and files need parts
        draft.add_quirk("parts_as_strings")
    elif verdicts.lacks("input.string") or verdicts.lacks("user.string"):
        roles = ["user", "system", "developer"]
        draft.add_quirk("strings_as_parts", **({"roles": roles} if "assistant_as_string" in draft.quirks else {}))
    if verdicts.lacks("image") and verdicts.lacks("file"):
        draft.add_quirk("media_as_notes")
    elif verdicts.lacks("image"):
        draft.add_quirk("images_as_notes")
    elif verdicts.lacks("file"):
        draft.add_quirk("files_as_notes")
    if verdicts.lacks("item.ids"):
        draft.add_quirk("drop_item_ids")
    if verdicts.lacks("item.cache_control"):
        draft.add_quirk("strip_cache_control")
    draft.set_wire_if(verdicts.lacks("item.status"), status_fields="drop")
    draft.set_wire_if(verdicts.lacks("item.phase"), phase="drop")
    draft.set_wire_if(verdicts.lacks("item.unknown"), unknown_items="drop")
    draft.set_wire_if(verdicts.lacks("tools.custom") or verdicts.lacks("item.custom-call"), extension_tools="flatten")
    draft.set_wire_if(verdicts.has("counts"), counts_tokens=True)
    draft.set_wire_if(verdicts.lacks("cut"), cut="by_usage")
    draft.set_wire_if(verdicts.refuses("cache.breakpoint"), breakpoint_models=[])
    draft.set_wire_if(verdicts.refuses("field.unknown"), extra_fields=[])
    draft.set_limits(verdicts)
    _conclude_settings(verdicts, draft)
    return draft


def _conclude_roles(verdicts: Verdicts, draft: ProfileDraft) -> None:
    system, developer = verdicts.has("system"), verdicts.has("developer")
    if verdicts.lacks("instructions") and (system or developer):
        draft.add_quirk("instructions_to_system", **({} if system else {"role": "developer"}))
    if not developer and verdicts.was_tried("developer"):
        draft.add_quirk("developer_as_system")
    if not system and verdicts.was_tried("system"):
        draft.add_quirk("system_as_developer") if developer else draft.add_quirk("system_to_instructions", move="all")
    elif verdicts.lacks("system.middle") and not verdicts.lacks("instructions"):
        draft.add_quirk("system_to_instructions", move="all")


def _conclude_history(verdicts: Verdicts, draft: ProfileDraft) -> None:
    if verdicts.lacks("calls.paired"):
        draft.add_quirk("tool_results_in_user_messages" if verdicts.has("calls.blocks") else "tool_history_as_text")
    if (
        verdicts.lacks("assistant.output_text")
        and not verdicts.has("assistant.string")
        and verdicts.has("assistant.input_text")
    ):
        draft.set_wire_if(True, assistant_content="input_text")
    elif verdicts.has("assistant.string") and (
        verdicts.lacks("assistant.output_text") or verdicts.lacks("assistant.refusal")
    ):
        draft.add_quirk("assistant_as_string")
    if verdicts.lacks("reasoning.content"):
        draft.add_quirk("drop_reasoning")
    elif verdicts.lacks("reasoning.summary"):
        draft.add_quirk("open_reasoning")


def _conclude_settings(verdicts: Verdicts, draft: ProfileDraft) -> None:
    missing_fields = [name for name in FIELDS if verdicts.refuses(f"field.{name}")]
    missing_fields += ["max_output_tokens"] if verdicts.lacks("limit.max_output_tokens") else []
    missing_fields += ["tool_choice"] if verdicts.refuses("tools.required") and verdicts.refuses("tools.named") else []
    missing_fields += ["text.format"] if verdicts.lacks("format.schema") else []
    efforts = verdicts.accepted_words("effort", EFFORTS)
    if verdicts.refuses("effort.low"):
        missing_fields.append("reasoning")
    elif efforts:
        draft.set_wire_if(True, efforts=efforts)
    draft.set_wire_if(bool(missing_fields), lacks=sorted(missing_fields))
