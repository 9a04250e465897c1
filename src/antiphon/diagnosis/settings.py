"""Select the profile settings to suggest: those that the dialect has and the profile does not have yet."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from antiphon.diagnosis.finding import Finding
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.profiles import QUIRKS, Profile

QUIRK_PREFIX = "quirks: "
WIRE_PREFIX = "wire."


def keep_useful_settings(findings: list[Finding], dialect: ServerDialectName, profile: Profile | None) -> list[Finding]:
    """Return the findings with only those settings that would change the request. A profile of another dialect is
    ignored."""
    matching_profile = profile if profile is not None and profile.dialect == dialect else None
    return [
        replace(
            finding,
            settings=tuple(
                setting for setting in finding.settings if _changes_request(setting, dialect, matching_profile)
            ),
        )
        for finding in findings
    ]


def _changes_request(setting: str, dialect: ServerDialectName, profile: Profile | None) -> bool:
    if setting.startswith(QUIRK_PREFIX):
        name = setting.removeprefix(QUIRK_PREFIX)
        return name in QUIRKS and (profile is None or name not in {quirk.name for quirk in profile.quirks})
    name, _, value = setting.removeprefix(WIRE_PREFIX).partition(" = ")
    try:
        parsed_options = msgspec.convert({name: msgspec.json.decode(value)}, SERVER_DIALECTS[dialect].wire_type)
    except msgspec.ValidationError:  # a setting of another dialect
        return False
    wire = SERVER_DIALECTS[dialect].wire_type() if profile is None else profile.wire
    return bool(getattr(wire, name) != getattr(parsed_options, name))
