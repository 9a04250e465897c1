"""Generates docs/modules.md: every module with the first sentence of its docstring.

PYTHONPATH=. python tools/modules_page.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = REPO / "src" / "antiphon"
PAGE: Final = REPO / "docs" / "modules.md"
HEAD: Final = """# Modules

This page lists every module with the first sentence of its docstring. `tools/modules_page.py` generates it.
[Architecture](architecture.md) describes how the packages work together.
"""


def page() -> str:
    """Returns the text of the page."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.stem not in ("__init__", "__main__"):
            folders.setdefault(path.parent.relative_to(SOURCE).as_posix(), []).append(path)
    return HEAD + "".join(_section(folder, folders[folder]) for folder in sorted(folders))


def _section(folder: str, paths: list[Path]) -> str:
    title = "antiphon" if folder == "." else folder
    rows = "".join(f"| `{path.stem}` | {_first_sentence(path)} |\n" for path in paths)
    return f"\n## `{title}`\n\n| module | purpose |\n|---|---|\n{rows}"


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.match(r".+?[.!?](?=\s|$)", paragraph)
    return (sentence[0] if sentence else paragraph).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
