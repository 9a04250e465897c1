"""The format of `/metrics`, and the sum over several processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from tests.ops import prometheus_text

from antiphon.ops.exposition import (
    Family,
    Histogram,
    SharedMetrics,
    format_labels,
    hide_label,
    render_text,
    sum_families,
)

pytestmark = pytest.mark.without_coverage


def a_counter(value: float, **labels: str) -> Family:
    return Family("things_total", "counter", "Things.", {f"{{{format_labels(labels)}}}" if labels else "": value})


def a_gauge(value: float) -> Family:
    return Family("room", "gauge", "Room.", {"": value})


def a_histogram(*seconds: float) -> Histogram:
    histogram = Histogram((0.5, 1.0))
    for value in seconds:
        histogram.counts[0 if value <= 0.5 else 1 if value <= 1.0 else 2] += 1
        histogram.total += value
    return histogram


def test_family_is_rendered_with_help_and_type() -> None:
    assert render_text([a_counter(3, model="m")]).decode() == (
        '# HELP things_total Things.\n# TYPE things_total counter\nthings_total{model="m"} 3\n'
    )


def test_family_without_samples_is_not_rendered() -> None:
    assert render_text([Family("things_total", "counter", "Things.", {}), a_gauge(0.25)]).decode().count("#") == 2


def test_label_values_may_be_any_text() -> None:
    odd = 'a "name"\\with\nlines, {braces}, é 😀 and \ud800'
    families = prometheus_text.read(render_text([a_counter(1, model=odd)]).decode())
    [(_, labels)] = families["things_total"].samples
    assert labels == (("model", odd.replace("\ud800", "?")),)


def test_help_text_is_escaped_to_one_line() -> None:
    text = render_text([Family("room", "gauge", "All\nthat \\ is.", {"": 1})]).decode()
    assert "# HELP room All\\nthat \\\\ is.\n" in text
    prometheus_text.read(text)


def test_whole_numbers_are_rendered_without_fraction() -> None:
    text = render_text(
        [a_gauge(0.1), Family("other", "gauge", "Other.", {"": 2.0**60}), Family("more", "gauge", "More.", {"": 3.0})]
    )
    assert b"room 0.1\n" in text
    assert b"other 1.152921504606847e+18\n" in text
    assert b"more 3\n" in text


def test_histogram_buckets_are_cumulative() -> None:
    samples = {**a_histogram(0.1, 0.2, 0.7, 9.0).samples('model="m"'), **a_histogram().samples('model="n"')}
    read = prometheus_text.read(render_text([Family("wait_seconds", "histogram", "Waits.", samples)]).decode())[
        "wait_seconds"
    ]
    assert [read.value("_bucket", model="m", le=bound) for bound in ("0.5", "1", "+Inf")] == [2, 3, 4]
    assert (read.value("_count", model="m"), read.value("_sum", model="m")) == (4, 10.0)
    assert read.value("_count", model="n") == 0


def test_histogram_without_labels_is_rendered() -> None:
    text = render_text([Family("wait_seconds", "histogram", "Waits.", a_histogram(0.1).samples(""))]).decode()
    assert 'wait_seconds_bucket{le="0.5"} 1\n' in text
    assert "wait_seconds_count 1\n" in text
    prometheus_text.read(text)


def test_metrics_of_processes_are_summed() -> None:
    first = [
        a_counter(1, model="m"),
        a_gauge(2),
        Family("wait_seconds", "histogram", "Waits.", a_histogram(0.1).samples("")),
    ]
    second = [a_counter(5, model="m"), a_counter(7, model="n"), a_gauge(3)]
    third = [Family("wait_seconds", "histogram", "Waits.", a_histogram(0.7, 0.8).samples(""))]
    read = prometheus_text.read(render_text(sum_families([first, second, third])).decode())
    assert (read["things_total"].value(model="m"), read["things_total"].value(model="n")) == (6, 7)
    assert read["room"].value() == 5
    assert read["wait_seconds"].value("_bucket", le="0.5") == 1
    assert read["wait_seconds"].value("_count") == 3
    assert first[0].samples == {'{model="m"}': 1}


def test_shared_metrics_contain_only_those_of_other_processes(tmp_path: Path) -> None:
    mine, parents = SharedMetrics(tmp_path, os.getpid()), SharedMetrics(tmp_path, os.getppid())
    assert mine.read_others() == []
    mine.write([a_counter(1), a_gauge(1)])
    mine.write([a_counter(2), a_gauge(2)])
    assert mine.read_others() == []
    assert parents.read_others() == [[a_counter(2), a_gauge(2)]]


@pytest.mark.io
def test_shared_metrics_of_a_dead_process_keep_only_counters(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=len, args=((),))
    process.start()
    process.join()
    assert process.pid is not None
    SharedMetrics(tmp_path, process.pid).write([a_counter(2), a_gauge(2)])
    assert SharedMetrics(tmp_path, os.getpid()).read_others() == [[a_counter(2)]]


def test_shared_metrics_ignore_a_missing_or_damaged_folder(tmp_path: Path) -> None:
    (tmp_path / f"{os.getppid()}.json").write_bytes(b"[{")
    assert SharedMetrics(tmp_path, os.getpid()).read_others() == []
    gone = SharedMetrics(tmp_path / "gone", os.getpid())
    gone.write([a_counter(1)])
    assert gone.read_others() == []


def test_hidden_label_has_one_value_and_sums_its_samples() -> None:
    odd = 'a,model="x\\'
    family = sum_families(
        [
            [a_counter(1, endpoint="/{model}", model="m", upstream=odd)],
            [a_counter(2, endpoint="/{model}", model=odd, upstream=odd)],
            [a_counter(4, endpoint="/{model}", model="", upstream=odd)],
        ]
    )[0]
    hidden = prometheus_text.read(render_text([hide_label(family, "model", "other")]).decode())["things_total"]
    assert hidden.value(endpoint="/{model}", model="other", upstream=odd) == 3
    assert hidden.value(endpoint="/{model}", model="", upstream=odd) == 4
