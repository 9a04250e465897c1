"""Writes the fields of the installed SDKs to `fields.txt`, and prints how many are generated."""

from __future__ import annotations

from tests.identity.inventory import PATH, count_fields, fields_text
from tests.identity.sources import SOURCES

PATH.write_text(fields_text(), encoding="utf-8")
for name, source in SOURCES.items():
    kinds, generated, left_out = count_fields(source)
    print(f"{name}: {kinds} types, {generated} fields generated, {left_out} not")
