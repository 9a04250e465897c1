"""Select the profile settings to suggest: those that the dialect has and the profile does not have yet."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from antiphon.diagnosis.finding import Finding
from antiphon.profiles import QUIRKS, Dialect, Profile
from antiphon.profiles.profile import WIRE_TYPES

QUIRK_PREFIX = "quirks: "
WIRE_PREFIX = "wire."


def keep_useful_settings(findings: list[Finding], dialect: Dialect, profile: Profile | None) -> list[Finding]:
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


def _changes_request(setting: str, dialect: Dialect, profile: Profile | None) -> bool:
    if setting.startswith(QUIRK_PREFIX):
        name = setting.removeprefix(QUIRK_PREFIX)
        return name in QUIRKS and (profile is None or name not in {quirk.name for quirk in profile.quirks})
    name, _, value = setting.removeprefix(WIRE_PREFIX).partition(" = ")
    try:
        parsed_options = msgspec.convert({name: msgspec.json.decode(value)}, WIRE_TYPES[dialect])
    except msgspec.ValidationError:  # a setting of another dialect
        return False
    wire = WIRE_TYPES[dialect]() if profile is None else profile.wire
    return bool(getattr(wire, name) != getattr(parsed_options, name))
