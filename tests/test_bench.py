"""The benchmark's own report: sections replace their former selves and leave the others alone."""

from __future__ import annotations

from pathlib import Path

from bench.report import table, write_section
from bench.targets import TARGETS
from bench.workloads import WORKLOADS


def test_a_section_replaces_the_one_of_the_same_title_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    write_section("One", "old", path)
    write_section("Two", "kept\n", path)
    write_section("One", "new", path)
    text = path.read_text()
    assert text.startswith("# Results\n")
    assert text.endswith("## One\n\nnew\n\n## Two\n\nkept\n")


def test_a_table_has_a_row_for_each_row() -> None:
    assert table(["name", "µs"], [["a", "1"], ["b", "2"]]) == "| name | µs |\n| --- | --: |\n| a | 1 |\n| b | 2 |\n"


def test_an_answer_in_open_responses_must_hold_what_the_workload_is_about() -> None:
    assert WORKLOADS["tools"].markers("responses") == ["response.completed", "response.function_call_arguments.done"]
    assert WORKLOADS["tools"].markers("chat") == ["[DONE]"]
    assert WORKLOADS["json"].markers("responses") == ["output_text"]


def test_the_whole_path_of_the_gateway_is_measured() -> None:
    settings = TARGETS["antiphon"].files["antiphon.toml"]
    assert "[[keys]]" in settings
    assert "[trace]" not in settings
