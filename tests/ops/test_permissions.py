"""A warning at the start for data that other users can read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.ops.served_process import gateway

from antiphon.config import Config, StoreConfig, TraceConfig
from antiphon.ops.logger import Logger
from antiphon.ops.permissions import warn_about_readable_data

pytestmark = pytest.mark.without_coverage


def config_in(folder: Path) -> Config:
    store = StoreConfig(url=f"sqlite:///{folder}/antiphon.db")
    return Config(store=store, trace=TraceConfig(dir=str(folder / "traces")))


def warnings_of(config: Config) -> list[str]:
    out = io.StringIO()
    warn_about_readable_data(config, {}, Logger(out, "json"))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(line["level"] == "warning" for line in lines)
    return [f"{line['event']}: {line['path']}; {line['remedy']}" for line in lines]


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o640, 0o750), (0o604, 0o705), (0o666, 0o777)])
def test_readable_data_is_a_warning_with_a_remedy(tmp_path: Path, file_mode: int, folder_mode: int) -> None:
    (tmp_path / "antiphon.db").touch()
    (tmp_path / "antiphon.db").chmod(file_mode)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces").chmod(folder_mode)
    assert warnings_of(config_in(tmp_path)) == [
        f"other users of this machine can read the database: {tmp_path}/antiphon.db; chmod 600 {tmp_path}/antiphon.db*",
        f"other users of this machine can read the folder of the traces: {tmp_path}/traces; chmod 700 {tmp_path}/traces",
    ]


def test_private_missing_and_other_data_is_no_warning(tmp_path: Path) -> None:
    assert warnings_of(config_in(tmp_path)) == []
    (tmp_path / "antiphon.db").touch(0o600)
    (tmp_path / "traces").mkdir(0o700)
    assert warnings_of(config_in(tmp_path)) == []
    assert warnings_of(Config(store=StoreConfig(url="postgresql://localhost/x"))) == []
    assert warnings_of(Config(store=StoreConfig(url="off"))) == []


@pytest.mark.io
def test_gateway_warns_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces").chmod(0o755)
    with gateway(config_in(tmp_path)) as served:
        assert served.get("/health").status_code == 200
        served.stop()
        assert [line["path"] for line in served.log if "can read" in line["event"]] == [f"{tmp_path}/traces"]
