"""Tests of the description of the package for a package index."""

from __future__ import annotations

from tests.sources import REPO
from tools.package_description import description, relative_links, repository_address, with_addresses

README = """# A

![the parts](docs/images/architecture.svg)

See [install](docs/install.md#times), [this](#a) and [uv](https://example.test/uv).

```sh
echo "[not](a-link)"
```
"""
FORGE = "https://forge.test/owner/antiphon"


def test_links_lead_to_the_released_version_of_a_known_repository() -> None:
    text = description(README, FORGE, "v0.1.0")
    assert f"![the parts]({FORGE}/raw/v0.1.0/docs/images/architecture.svg)" in text
    assert f"[install]({FORGE}/blob/v0.1.0/docs/install.md#times), [this](#a) and [uv](https://example.test/uv)" in text
    assert '[not](a-link)"' in text


def test_links_become_text_where_the_repository_is_unknown() -> None:
    text = description(README, None, "v0.1.0")
    assert "See install, [this](#a) and [uv](https://example.test/uv)." in text
    assert "docs/images/architecture.svg" not in text
    assert '[not](a-link)"' in text


def test_readme_of_the_project_has_links_that_an_index_cannot_resolve() -> None:
    text = (REPO / "README.md").read_text(encoding="utf-8")
    assert "docs/images/architecture.svg" in relative_links(text)
    assert relative_links(description(text, FORGE, "v0.1.0")) == relative_links(description(text, None, "v1")) == []


def test_repository_is_that_of_the_workflow() -> None:
    variables = {"GITHUB_SERVER_URL": "https://forge.test", "GITHUB_REPOSITORY": "owner/antiphon"}
    assert repository_address(variables) == FORGE
    assert repository_address({}) is None


def test_addresses_are_added_only_if_they_are_known() -> None:
    assert with_addresses("[project]\n", None, "v1") == "[project]\n"
    assert f'Changelog = "{FORGE}/blob/v1/CHANGELOG.md"' in with_addresses("[project]\n", FORGE, "v1")
