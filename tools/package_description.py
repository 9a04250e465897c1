"""The page of the package on a package index: the README, whose links there cannot lead to files of the repository.

The address of the repository is not part of the source. Where it is known, links and images get absolute addresses of
the released version, and the metadata gets the address. Elsewhere the texts of links stay, and images are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# A fenced block, which has no links; or a link or an image whose target is a file or an anchor of this repository.
BLOCK_OR_LINK: Final = re.compile(r"^```.*?^```|(!?)\[([^]]*)\]\(([^)\s:]+)\)", re.MULTILINE | re.DOTALL)
URLS: Final = '\n[project.urls]\nSource = "{0}"\nChangelog = "{0}/blob/{1}/CHANGELOG.md"\n'


def repository_address(variables: Mapping[str, str]) -> str | None:
    """Returns the address of the repository, from the variables that a workflow of the forge has."""
    server, name = variables.get("GITHUB_SERVER_URL"), variables.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def description(readme: str, repository: str | None, tag: str) -> str:
    """Returns the README for a package index."""

    def replace(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if text is None or target.startswith("#"):
            return match[0]
        if repository is None:
            return "" if mark else text
        return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/{tag}/{target})"

    return BLOCK_OR_LINK.sub(replace, readme)


def with_addresses(pyproject: str, repository: str | None, tag: str) -> str:
    """Returns pyproject.toml with the addresses of the project, if they are known."""
    return pyproject + URLS.format(repository, tag) if repository else pyproject


def relative_links(text: str) -> list[str]:
    """Returns the targets of links and images that a package index cannot resolve."""
    return [match[3] for match in BLOCK_OR_LINK.finditer(text) if match[3] and not match[3].startswith("#")]
