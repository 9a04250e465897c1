"""`config/changes`: what a reload changes, and what only a restart can change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from antiphon.config import (
    BackgroundConfig,
    Config,
    KeyConfig,
    ServerConfig,
    StoreConfig,
    UpstreamConfig,
    describe_changes,
    keep_restart_settings,
)
from antiphon.config.changes import RESTART_SETTINGS
from antiphon.config.schema import TraceConfig

LAB = UpstreamConfig(name="lab", dialect="chat", base_url="http://lab/v1")
OTHER = UpstreamConfig(name="other", dialect="chat", base_url="http://other/v1")
ALICE, BOB = (KeyConfig(name=name, env=name.upper()) for name in ("alice", "bob"))
CURRENT = Config(upstreams=[LAB], keys=[ALICE])


def test_settings_that_need_a_restart_keep_their_values_and_are_named() -> None:
    new = Config(
        server=ServerConfig(host="0.0.0.0", port=1, workers=4, style="older"),
        store=StoreConfig(url="off"),
        trace=TraceConfig(dir="traces"),
        background=BackgroundConfig(running=1, waiting=2),
        upstreams=[OTHER],
    )
    config, names = keep_restart_settings(CURRENT, new)
    assert names == ["server.host", "server.port", "server.workers", "trace.dir", "store.url", "background.running"]
    assert config == replace(
        CURRENT,
        server=ServerConfig(style="older"),
        background=BackgroundConfig(waiting=2),
        upstreams=[OTHER],
        keys=[],
    )


def test_unchanged_settings_need_no_restart() -> None:
    assert keep_restart_settings(CURRENT, CURRENT) == (CURRENT, [])


@pytest.mark.parametrize("table", RESTART_SETTINGS)
def test_settings_that_need_a_restart_exist(table: str) -> None:
    assert set(RESTART_SETTINGS[table]) <= set(getattr(CURRENT, table).__struct_fields__)


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        ({"upstreams": [OTHER]}, ["upstreams: added other, removed lab"]),
        ({"upstreams": [replace(LAB, models=["m"])]}, ["upstreams: changed lab"]),
        ({"keys": []}, ["keys: removed alice"]),
        ({"keys": [ALICE, BOB, replace(ALICE, env="SECOND")]}, ["keys: added bob, changed alice"]),
        ({"server": ServerConfig(default_model="m", max_tools=1)}, [
            "server.max_tools: changed",
            "server.default_model: changed",
        ]),
    ],
)  # fmt: skip
def test_changes_are_described(changed: dict[str, object], lines: list[str]) -> None:
    assert describe_changes(CURRENT, replace(CURRENT, **changed)) == lines


def test_another_order_of_upstreams_is_a_change() -> None:
    current = replace(CURRENT, upstreams=[LAB, OTHER])
    assert describe_changes(current, replace(CURRENT, upstreams=[OTHER, LAB])) == ["upstreams: another order"]
