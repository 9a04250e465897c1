"""Runs the steps of the Dockerfile in a clean Debian root, without Docker: `python tools/image_in_root.py FOLDER`.

FOLDER/base is the base image; `debootstrap` makes it if it is missing. The build stage and the final stage are copies
of it. The script runs `RUN`, `COPY`, `ENV`, `USER` and `WORKDIR` in order. Then it starts the gateway as the user of
the image with a read-only root, asks the embedded model, and runs the health check. It needs root and `debootstrap`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
SUITE: Final = "bookworm"
PACKAGES: Final = "python3,python3-venv,ca-certificates"
PORT: Final = 18080
START_LIMIT: Final = 120.0  # seconds
CONFIG: Final = (
    f'[server]\nport = {PORT}\n\n[[upstreams]]\nname = "local"\ndialect = "chat"\nembedded = true\nmodels = ["local"]\n'
)
QUESTION: Final = {"model": "local", "input": "What is the capital of Peru?", "max_output_tokens": 30, "store": True}


class Step(Struct, frozen=True):
    """One instruction of a Dockerfile."""

    name: str
    arguments: str


class Stage(Struct):
    """A root file system, and the settings for its next command."""

    root: Path
    variables: dict[str, str]
    folder: str = "/"
    user: str = "0"
    entry_point: tuple[str, ...] = ()
    health_check: tuple[str, ...] = ()


def parse_dockerfile(text: str) -> list[Step]:
    """The instructions, with continued lines joined, without comments."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    lines = [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]
    return [Step(*line.split(maxsplit=1)) for line in lines]


def main() -> None:
    if len(sys.argv) != 2 or os.geteuid() != 0:
        sys.exit(f"usage, as root: {sys.argv[0]} FOLDER")
    work = Path(sys.argv[1]).absolute()
    make_base(work / "base")
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for step in parse_dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        print(f"{step.name} {step.arguments[:100]}", flush=True)
        if step.name == "FROM":
            name = step.arguments.partition(" AS ")[2] or "final"
            stage = stages[name] = Stage(copy_base(work, name), {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin"})
        elif stage is not None:
            run_step(step, stage, stages)
    check_image(stages["final"])


def make_base(base: Path) -> None:
    if not base.is_dir():
        base.parent.mkdir(parents=True, exist_ok=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base))


def copy_base(work: Path, name: str) -> Path:
    root = work / name
    shutil.rmtree(root, ignore_errors=True)
    run("cp", "-a", str(work / "base"), str(root))
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    return root


def run_step(step: Step, stage: Stage, stages: dict[str, Stage]) -> None:
    match step.name:
        case "RUN":
            run_in(stage, ["sh", "-c", step.arguments])
        case "COPY":
            copy(step.arguments, stage, stages)
        case "ENV":
            for name, value in (pair.split("=", 1) for pair in shlex.split(step.arguments)):
                stage.variables[name] = value.replace("$PATH", stage.variables["PATH"])
        case "USER":
            stage.user = step.arguments
        case "WORKDIR":
            stage.folder = step.arguments
            (stage.root / step.arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "ENTRYPOINT":
            stage.entry_point = tuple(json.loads(step.arguments))
        case "HEALTHCHECK":
            stage.health_check = tuple(json.loads(step.arguments.partition("CMD ")[2]))


def copy(arguments: str, stage: Stage, stages: dict[str, Stage]) -> None:
    words = arguments.split()
    source = ROOT
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].root
    *names, target_name = words
    target = stage.root / (Path(stage.folder) / target_name).as_posix().lstrip("/")
    for name in names:
        path = source / name.lstrip("/")
        if path.is_dir():
            shutil.copytree(
                path, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(path, target)


def run_in(stage: Stage, command: list[str]) -> None:
    variables = {**stage.variables, **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
    with network_settings(stage.root):
        run("chroot", str(stage.root), "env", "-C", stage.folder, *command, env=variables)


class network_settings:
    """Gives a root the package settings of this machine for one command, as a build with a mirror has them."""

    FILES: Final = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        for name in self.FILES:
            if Path(name).is_file():
                shutil.copy(name, self._root / name.lstrip("/"))

    def __exit__(self, *_: object) -> None:
        (self._root / "etc/pip.conf").unlink(missing_ok=True)


def check_image(stage: Stage) -> None:
    """Runs the gateway with a read-only root in namespaces of its own; only /data can be written."""
    config = stage.root / "etc/antiphon/antiphon.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG, encoding="utf-8")
    root = shlex.quote(str(stage.root))
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in stage.variables.items())
    serve = shlex.join([*stage.entry_point, "serve", "--config", "/etc/antiphon/antiphon.toml"])
    script = (
        f"mount --bind {root} {root} && mount --bind {root}/data {root}/data && mount -o remount,ro,bind {root} && "
        f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && "
        f"exec chroot --userspec={stage.user}:{stage.user} {root} env -i -C {stage.folder} {variables} {serve}"
    )
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script])
    try:
        await_gateway(process)
        answer = ask()
        print(f"the model answered: {answer}")
        writes = subprocess.run(
            ["find", str(stage.root / "data"), "-type", "f"], capture_output=True, text=True, check=True
        )
        print(f"files in /data: {writes.stdout.split() or 'none'}")
        health_check = [word.replace(":8080", f":{PORT}") for word in stage.health_check]
        run("chroot", str(stage.root), *health_check, env=stage.variables)
        print("the health check passed")
        if "Lima" not in answer:
            sys.exit(f"unexpected answer: {answer!r}")
    finally:
        process.terminate()
        process.wait(30)


def await_gateway(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    sys.exit("the gateway of the image did not start")


def ask() -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/responses", json.dumps(QUESTION).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=START_LIMIT) as response:
        output = json.load(response)["output"]
    return "".join(part["text"] for item in output for part in item["content"])


def run(*command: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, env=env, check=True)


if __name__ == "__main__":
    main()
