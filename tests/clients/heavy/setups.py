"""Writes the documented set-up of a client for a driver: the block of the page, with the address of the gateway and the
model of each feature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.clients.blocks import DOCS
from tests.clients.heavy.catalog import Client

DOCUMENTED_URL: Final = "http://127.0.0.1:8080"
DOCUMENTED_MODEL: Final = "mock-1"


def section_of(heading: str) -> str:
    """The page from a heading to the next of the same kind."""
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    title = re.search(rf"^(##+) {re.escape(heading)}\n", page, re.MULTILINE)
    assert title, f"the page has no heading {heading!r}"
    rest = page[title.end() :]
    end = re.search(rf"^#{{2,{len(title[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def setup_block(heading: str) -> tuple[str, str]:
    """The language and the text of the first block under a heading of the page."""
    match = re.search(r"^```(\w+)\n(.*?)^```", section_of(heading), re.DOTALL | re.MULTILINE)
    assert match, f"there is no block under the heading {heading!r}"
    return match[1], match[2]


def write_setups(client: Client, folder: Path, gateway: str, features: Sequence[str]) -> dict[str, str]:
    """Writes the set-up for each feature, and returns the environment that the client needs."""
    language, text = setup_block(client.heading)
    assert DOCUMENTED_URL in text
    assert DOCUMENTED_MODEL in text or language in ("py", "js")
    for feature in features:
        own = text.replace(DOCUMENTED_URL, gateway).replace(DOCUMENTED_MODEL, f"lab-{feature}")
        match language:
            case "py":
                (folder / f"setup_{feature}.py").write_text(own, encoding="utf-8")
            case "js":
                (folder / f"setup_{feature}.mjs").write_text(own, encoding="utf-8")
            case "yaml":
                with (folder / "extra-openai-models.yaml").open("a", encoding="utf-8") as models:
                    models.write(own)
    if language == "yaml":  # the file that `llm keys set antiphon` writes
        (folder / "keys.json").write_text('{"antiphon": "any"}', encoding="utf-8")
    environ = {"LLM_USER_PATH": str(folder)} if language == "yaml" else {}
    return {**environ, "SETUP_VARIABLE": client.variable} if client.variable else environ
