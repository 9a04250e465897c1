"""What differs between servers of one dialect, as data: profiles (TOML), and the quirks they name.

This is the only room that knows providers by name.
"""

from antiphon.profiles.loading import load_profile, profile_names
from antiphon.profiles.profile import Dialect, Profile, Wire, parse_profile
from antiphon.profiles.quirks import QUIRKS, Quirk

__all__ = ["QUIRKS", "Dialect", "Profile", "Quirk", "Wire", "load_profile", "parse_profile", "profile_names"]
