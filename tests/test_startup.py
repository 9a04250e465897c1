"""What programs import when they start: the modules stand for the time, which a test cannot measure reliably."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

pytestmark = pytest.mark.io
PRINT_MODULES = "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))\n"
#: Packages that only some configurations or commands need, and that take long to import.
OPTIONAL = {"opentelemetry", "psycopg", "psycopg_pool", "llama_cpp", "prometheus_client", "pytest"}
LAB = '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["mock-1"]\n'


def modules_after(program: str) -> set[str]:
    """The modules that a program imported, without those that Python imports for itself."""
    ended = subprocess.run(
        [sys.executable, "-c", PRINT_MODULES + program], capture_output=True, text=True, timeout=60, check=False
    )
    return _modules_in(ended.stderr) - _modules_of_python()


def packages_of(modules: set[str]) -> set[str]:
    """The packages of Antiphon, and the packages of others."""
    names = {".".join(name.split(".")[: 2 if name.startswith("antiphon.") else 1]) for name in modules}
    return {name for name in names if not name.startswith("_")}


def test_import_antiphon_imports_nothing_else() -> None:
    modules = modules_after("import antiphon")
    assert packages_of(modules) <= {"antiphon", "importlib", "warnings"}


def test_version_option_imports_no_command() -> None:
    modules = modules_after("from antiphon.cli import main; main(['--version'])")
    assert {name for name in modules if name.startswith("antiphon")} == {
        "antiphon",
        "antiphon.cli",
        "antiphon.cli.entry",
        "antiphon.cli.exits",
        "antiphon.cli.help",
        "antiphon.cli.terminal",
        "antiphon.errors",
        "antiphon.ops",
        "antiphon.ops.line_width",
    }
    assert not modules & {"asyncio", "msgspec", "ssl"}


@pytest.mark.parametrize("command", ["serve", "ask", "models", "config", "translate"])
def test_command_imports_no_other_command(command: str) -> None:
    modules = modules_after(f"from antiphon.cli import main; main([{command!r}, '--help'])")
    commands = {"ask", "bridge", "check", "explain", "models", "probe", "serve", "trace", "translate", "usage"}
    assert {name for name in commands if f"antiphon.cli.{name}" in modules} <= {command}


def test_import_client_imports_no_gateway() -> None:
    modules = modules_after("import antiphon.client")
    assert {name for name in packages_of(modules) if name.startswith("antiphon")} == {
        "antiphon",
        "antiphon.client",
        "antiphon.config",
        "antiphon.dialects",
        "antiphon.errors",
        "antiphon.profiles",
        "antiphon.protocol",
        "antiphon.redaction",
        "antiphon.sse",
        "antiphon.system_stamps",
        "antiphon.upstream",
    }
    assert not packages_of(modules) & {*OPTIONAL, "websockets", "uvicorn", "argparse", "sqlite3"}
    assert not {name for name in modules if name.startswith("antiphon.upstream.embedded")}
    assert len(modules) <= 440


def test_import_types_imports_only_the_protocol() -> None:
    modules = packages_of(modules_after("import antiphon.types"))
    assert {name for name in modules if name.startswith("antiphon")} == {
        "antiphon",
        "antiphon.errors",
        "antiphon.protocol",
        "antiphon.types",
    }


def test_serve_imports_nothing_that_its_configuration_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    program = PRINT_MODULES + "from antiphon.cli import main; sys.exit(main(['serve', '--port', '0']))"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environ,
    ) as process:
        assert process.stdout is not None
        assert list(takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
    modules = _modules_in(errors) - _modules_of_python()
    assert not packages_of(modules) & {
        *OPTIONAL,
        "antiphon.check",
        "antiphon.client",
        "antiphon.probe",
        "antiphon.producer",
        "antiphon.testing",
        "antiphon.translate",
    }
    assert not {name for name in modules if name.startswith("antiphon.store.postgres")}
    assert len(modules) <= 690


def _modules_in(errors: str) -> set[str]:
    [line] = [line for line in errors.splitlines() if line.startswith("MODULES ")]
    return set(line.split()[1:])


def _modules_of_python() -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PRINT_MODULES], capture_output=True, text=True, timeout=60, check=False
    )
    return _modules_in(ended.stderr)
