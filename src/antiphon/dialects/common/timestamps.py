"""Writes times as RFC 3339, without reading a clock."""

from __future__ import annotations


def rfc3339(second: int) -> str:
    """The time in UTC, by the proleptic Gregorian calendar: `1970-01-01T00:00:00Z` for 0."""
    days, rest = divmod(second, 86_400)
    # Years begin in March, so that a leap day is the last day of its year. An era has 400 years.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"
