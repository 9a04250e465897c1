"""`antiphon config check`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from antiphon.cli import config
from antiphon.cli.entry import make_parser
from antiphon.errors import ConfigError

LAB = """
[server]
port = 9000
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "http://127.0.0.1:9001/v1"
models = ["mock-*"]
"""


def _check(*words: str, cwd: Path) -> str:
    out = io.StringIO()
    args = make_parser().parse_args(["config", "check", *words])
    assert config.run(args, out, io.StringIO(), environ={"HOME": "/home/ada"}, cwd=cwd) == 0
    return out.getvalue()


def test_a_usable_configuration_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB)
    told = _check("lab.toml", cwd=tmp_path).splitlines()
    assert told[0] == f"{tmp_path / 'lab.toml'}: valid"
    assert told[1] == "  listens on 127.0.0.1, port 9000"
    assert any("lab" in line and "http://127.0.0.1:9001/v1" in line and "mock-*" in line for line in told)


def test_it_says_where_responses_are_kept(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB)
    (tmp_path / "off.toml").write_text(LAB + '[store]\nurl = "off"\n')
    assert "  responses: stored for 30 days, in /home/ada/" in _check("lab.toml", cwd=tmp_path)
    assert _check("off.toml", cwd=tmp_path).endswith("  responses: not stored, because [store] url is off\n")


def test_a_store_that_nobody_knows_is_raised(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(LAB + '[store]\nurl = "mysql://h/d"\n')
    with pytest.raises(ConfigError, match="begins with mysql://"):
        _check("bad.toml", cwd=tmp_path)


def test_without_a_name_the_one_that_serve_would_take_is_checked(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    assert "antiphon.toml: valid" in _check(cwd=tmp_path)


def test_without_any_file_the_defaults_are_told(tmp_path: Path) -> None:
    told = _check(cwd=tmp_path)
    assert told.startswith("default configuration (no file): valid\n  listens on 127.0.0.1, port 8080\n")
    assert "local" in told


def test_config_check_raises_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(LAB.replace("port", "prot"))
    with pytest.raises(ConfigError, match="prot"):
        _check("bad.toml", cwd=tmp_path)
