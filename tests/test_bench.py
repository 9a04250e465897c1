"""The benchmark's own report: sections replace their former selves and leave the others alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
from bench.gateway import OF_DIALECTS
from bench.payloads import plain_body, responses_body
from bench.report import table, write_section
from bench.targets import TARGETS, antiphon
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


def test_a_body_says_whether_its_response_is_kept() -> None:
    for stream in (False, True):
        bodies = {store: msgspec.json.decode(plain_body("mock-n16", stream=stream, store=store)) for store in (False, True)}
        assert [body["store"] for body in bodies.values()] == [False, True]
        assert bodies[True] == {**bodies[False], "store": True}
        assert msgspec.json.decode(responses_body(stream=stream, store=True))["store"] is True
    assert msgspec.json.decode(responses_body())["store"] is False


def test_a_store_is_measured_in_a_folder_of_the_run_or_where_it_is_told() -> None:
    assert 'url = "sqlite:///{folder}/antiphon.db"' in TARGETS["antiphon"].files["antiphon.toml"]
    two = antiphon("two", "", store="postgresql://somewhere", workers=2)
    assert 'url = "postgresql://somewhere"' in two.files["antiphon.toml"]
    assert "workers = 2\n" in two.files["antiphon.toml"]
    assert two.workers == 2


def test_the_whole_path_of_the_gateway_is_measured() -> None:
    settings = TARGETS["antiphon"].files["antiphon.toml"]
    assert "[[keys]]" in settings
    assert "[trace]" not in settings


def test_a_gateway_is_measured_before_servers_of_several_dialects() -> None:
    settings = {target.name: target.files["antiphon.toml"] for target in OF_DIALECTS.targets}
    assert list(settings) == ["antiphon", "antiphon-messages", "antiphon-gemini"]
    assert 'dialect = "chat"\nbase_url = "http://127.0.0.1:{upstream}/v1"' in settings["antiphon"]
    assert 'dialect = "messages"\nbase_url = "http://127.0.0.1:{upstream}/v1"' in settings["antiphon-messages"]
    assert 'dialect = "gemini"\nbase_url = "http://127.0.0.1:{upstream}/v1beta"' in settings["antiphon-gemini"]
    assert set(OF_DIALECTS.workloads) <= set(WORKLOADS)
