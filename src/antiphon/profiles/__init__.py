"""Profiles: the differences between servers of one dialect, as TOML data, and the quirks that profiles name.

Only this package knows providers by name.
"""

from antiphon.profiles.loading import load_profile, profile_names
from antiphon.profiles.profile import Profile, Quirk, parse_profile
from antiphon.profiles.quirks import QUIRKS

__all__ = ["QUIRKS", "Profile", "Quirk", "load_profile", "parse_profile", "profile_names"]
