"""The blocks of `docs/clients.md`, so that what the tests run is what readers copy."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def block(containing: str) -> str:
    """The one block of the page that has these words."""
    (found,) = [
        text for text in re.findall(r"^```\w+\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE) if containing in text
    ]
    return str(found)
