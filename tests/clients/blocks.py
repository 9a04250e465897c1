"""The blocks of `docs/clients.md` and its neighbours, so that what the tests run is what readers copy."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def block(containing: str, page: str = "clients.md") -> str:
    """The one block of a page that has these words."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = [
        block for block in re.findall(r"^```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if containing in block
    ]
    return str(found)
