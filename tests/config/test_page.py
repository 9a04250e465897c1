"""docs/configuration.md is generated from the schema, and its example is a valid configuration."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from msgspec.structs import fields
from tools.configuration_page import EXAMPLE, PAGE, SECTIONS, page

from antiphon.config import describe_config, parse_config

ENVIRON = {
    "LAB_KEY": "sk-lab",
    "BOB_KEY": "sk-bob",
    "COMPACTION_KEY": "ab" * 32,
    "OLD_KEY": "cd" * 32,
    "ANTIPHON_METRICS_KEY": "ef" * 32,
}


def test_page_equals_the_output_of_its_generator() -> None:
    made = page()
    assert PAGE.read_text(encoding="utf-8") == made, "stale: run `PYTHONPATH=src python tools/configuration_page.py`"


def test_page_describes_every_setting_in_one_line() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]*\| (.+) \|$", page(), flags=re.MULTILINE)
    settings = [field.encode_name for shape in SECTIONS.values() for field in fields(shape)]
    assert [name for name, _, _ in rows if name.islower()] == settings
    assert all(kind.strip() and meaning.strip().endswith(".") for name, kind, meaning in rows if name.islower())


def test_page_example_is_a_valid_configuration() -> None:
    config = parse_config(EXAMPLE, "antiphon.toml", ENVIRON)
    assert [upstream.name for upstream in config.upstreams] == ["lab", "local", "mine"]
    assert {key.name for key in config.key_hashes(ENVIRON).values()} == {"alice", "bob"}
    assert describe_config(config)[-1] == "traces: in traces"


def test_page_example_contains_every_setting() -> None:
    toml = tomllib.loads(EXAMPLE)
    tables: dict[str, list[Any]] = {
        "`[server]`": [toml["server"]],
        "`[[upstreams]]`": toml["upstreams"],
        "`models`": [rule for rule in toml["upstreams"][0]["models"] if isinstance(rule, dict)],
        "`[[models]]`": toml["models"],
        "`targets`": toml["models"][0]["targets"],
        "`[retry]`": [toml["retry"]],
        "`[health]`": [toml["health"]],
        "`[[keys]]`": toml["keys"],
        "`[timeouts]`": [toml["timeouts"]],
        "`[trace]`": [toml["trace"]],
        "`[store]`": [toml["store"]],
        "`[background]`": [toml["background"]],
        "`[compaction]`": [toml["compaction"]],
        "`[telemetry]`": [toml["telemetry"]],
    }
    for name, shape in SECTIONS.items():
        assert {key for table in tables[name] for key in table} == {field.encode_name for field in fields(shape)}
