"""The options `--part` and `--fast`, in a run of pytest on files of the test's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.inner_pytest import run_pytest

FILES = {
    "test_mixed.py": """
import pytest

def test_plain(): pass

@pytest.mark.io
def test_io(): pass

@pytest.mark.parametrize("store", ["file", pytest.param("server", marks=pytest.mark.io)])
def test_store(store): pass

@pytest.mark.slow
def test_slow(): pass
""",
    "test_line.py": """
import pytest

pytestmark = pytest.mark.without_coverage

def test_through(): pass
""",
    "test_list.py": """
import pytest

pytestmark = [
    pytest.mark.io,
    pytest.mark.without_coverage,
]

def test_through_with_io(): pass
""",
}
WITHIN = {"test_plain", "test_io", "test_store[file]", "test_store[server]", "test_slow"}
THROUGH = {"test_through", "test_through_with_io"}

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], WITHIN | THROUGH),
        (["--part", "within"], WITHIN),
        (["--part", "through"], THROUGH),
        (["--part", "portable"], WITHIN | {"test_through"}),
        (["--fast"], {"test_plain", "test_store[file]", "test_through"}),
        (["--fast", "--part", "through"], {"test_through"}),
    ],
)
def test_options_select_tests_by_their_markers(arguments: list[str], expected: set[str], tmp_path: Path) -> None:
    status, output = run_pytest(tmp_path, *arguments, plugin="tests.selection", files=FILES)
    assert status == 0, output
    assert set(re.findall(r"PASSED \S+::(\S+)", output)) == expected


def test_modules_that_are_left_out_are_not_imported(tmp_path: Path) -> None:
    files = {name: f"raise AssertionError({name!r})\n{text}" for name, text in FILES.items() if name != "test_mixed.py"}
    plain = {"test_plain.py": "def test_plain(): pass"}
    status, output = run_pytest(tmp_path, "--part", "within", plugin="tests.selection", files=files | plain)
    assert status == 0, output
    for file in tmp_path.glob("test_*.py"):
        file.unlink()
    mixed = {"test_mixed.py": f"raise AssertionError\n{FILES['test_mixed.py']}"}
    through = {"test_line.py": FILES["test_line.py"]}
    status, output = run_pytest(tmp_path, "--part", "through", plugin="tests.selection", files=mixed | through)
    assert status == 0, output
