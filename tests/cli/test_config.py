"""`antiphon config check`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from antiphon.cli import config
from antiphon.cli.entry import make_parser
from antiphon.config.json_schema import config_schema
from antiphon.errors import ConfigError
from antiphon.testing import ChatServer

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


def test_config_check_summarises_a_valid_configuration(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB)
    output = _check("lab.toml", cwd=tmp_path).splitlines()
    assert output[0] == f"{tmp_path / 'lab.toml'}: valid"
    assert output[1] == "  listens on 127.0.0.1, port 9000"
    assert any("lab" in line and "http://127.0.0.1:9001/v1" in line and "mock-*" in line for line in output)


def test_config_check_escapes_direction_characters(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB.replace("mock-*", "mock\u202e-*"))
    assert "mock\\u202e-*" in _check("lab.toml", cwd=tmp_path)


def test_config_check_names_the_store(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB)
    (tmp_path / "off.toml").write_text(LAB + '[store]\nurl = "off"\n')
    assert "  responses: stored for 30 days, in /home/ada/" in _check("lab.toml", cwd=tmp_path)
    assert _check("off.toml", cwd=tmp_path).endswith("  responses: not stored, because [store] url is off\n")


def test_config_check_rejects_an_unknown_store(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(LAB + '[store]\nurl = "mysql://h/d"\n')
    with pytest.raises(ConfigError, match="begins with mysql://"):
        _check("bad.toml", cwd=tmp_path)


def test_config_check_reads_the_default_file(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    assert "antiphon.toml: valid" in _check(cwd=tmp_path)


def test_config_check_without_a_file_prints_the_defaults(tmp_path: Path) -> None:
    output = _check(cwd=tmp_path)
    assert output.startswith("default configuration (no file): valid\n  listens on 127.0.0.1, port 8080\n")
    assert "local" in output


def test_config_check_raises_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(LAB.replace("port", "prot"))
    with pytest.raises(ConfigError, match="prot"):
        _check("bad.toml", cwd=tmp_path)


def test_config_schema_prints_the_schema() -> None:
    out = io.StringIO()
    assert config.run(make_parser().parse_args(["config", "schema"]), out, io.StringIO(), environ={}) == 0
    assert json.loads(out.getvalue()) == config_schema()


@pytest.mark.io
def test_config_check_live_asks_the_upstreams(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    with ChatServer() as server:
        file.write_text(f'[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "{server.base_url}"\n')
        args = make_parser().parse_args(["config", "check", "--live", str(file)])
        out = io.StringIO()
        assert config.run(args, out, io.StringIO(), environ={"HOME": "/home/ada"}) == 0
        assert "  lab  answers, and lists" in out.getvalue()
    assert config.run(args, io.StringIO(), io.StringIO(), environ={"HOME": "/home/ada"}) == 1


def test_config_check_reports_all_faults_at_once(tmp_path: Path) -> None:
    """Faults of types and names, then those of the settings beside them."""
    faults = 'port = "x"\nhosts = 1\n[[upstreams]]\nname = "a"\ndialect = "chta"\n[[upstreams]]\nname = 5\n'
    (tmp_path / "bad.toml").write_text("[server]\n" + faults)
    with pytest.raises(ConfigError) as caught:
        _check("bad.toml", cwd=tmp_path)
    lines = str(caught.value).splitlines()
    for part in (
        "server.port: expected",
        "server.hosts: unknown",
        "upstreams[0].dialect: expected",
        "upstreams[1].name",
    ):
        assert any(part in line for line in lines), (part, lines)
    assert re.findall(r"line (\d+)", str(caught.value))[:3] == ["2", "3", "6"]
    (tmp_path / "bad.toml").write_text(MIXED_FAULTS)
    with pytest.raises(ConfigError) as caught:
        _check("bad.toml", cwd=tmp_path)
    paths = re.findall(r"bad\.toml, line (\d+): ([\w.\[\]]+)", str(caught.value))
    assert paths == [
        ("2", "server.port"),
        ("5", "upstreams[0].dialect"),
        ("6", "upstreams[0].base_url"),
        ("12", "upstreams[1].profile"),
        ("9", "upstreams[1].name"),
        ("13", "keys[0]"),
    ]
    relations = (
        LAB.replace("9001/v1", "9001/v1?x=1") + '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "x"\n'
    )
    (tmp_path / "bad.toml").write_text(relations)
    with pytest.raises(ConfigError) as caught:
        _check("bad.toml", cwd=tmp_path)
    assert len(str(caught.value).splitlines()) >= 3


def test_config_check_warns_of_shadowed_upstreams_and_unset_keys(tmp_path: Path) -> None:
    """An unset key does not stop the other upstreams."""
    other = '[[upstreams]]\nname = "b"\ndialect = "chat"\nbase_url = "http://h/v1"\nmodels = ["mock-1"]\napi_key_env = "GONE"\n'
    (tmp_path / "lab.toml").write_text(LAB + other)
    output = _check("lab.toml", cwd=tmp_path)
    assert "lab.toml: valid" in output
    warnings = [line for line in output.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "GONE is not set" in warnings[0]
    assert "is shadowed" in warnings[1]


def test_config_check_rejects_a_configuration_in_which_every_key_is_unset(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB + 'api_key_env = "GONE"\n')
    with pytest.raises(ConfigError, match="GONE is not set"):
        _check("lab.toml", cwd=tmp_path)


MIXED_FAULTS = """\
[server]
port = "x"
[[upstreams]]
name = "a"
dialect = "chatt"
base_url = "ftp://host"
profile = "google"
[[upstreams]]
name = "a"
dialect = "chat"
base_url = "http://127.0.0.1:1/v1"
profile = "nope"
[[keys]]
name = "k"
"""
