"""Starts `deploy/compose` with Docker and tests it from outside: `python tools/compose_check.py [--stand-ins FOLDER]`.

Builds the image, starts the two gateways, PostgreSQL and nginx of `compose.yaml`, and tests streaming, access, a killed
gateway, a stopped database and a graceful stop. Removes its containers and volumes at the end. It needs a Docker daemon
with compose, and the port 8080. `--stand-ins` is for machines without an image registry: it makes the images that the
files name from Debian packages, where they are missing. That needs root and `debootstrap`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMPOSE: Final = ROOT / "deploy" / "compose" / "compose.yaml"
PROJECT: Final = "antiphon-check"
KEY: Final = secrets.token_hex(24)
START_LIMIT: Final = 180  # seconds
REQUEST_LIMIT: Final = 60  # seconds
QUESTION: Final = "What is the capital of Peru?"
LONG_QUESTION: Final = "Write a story about a river."
ENDS: Final = ("response.completed", "response.incomplete")
SUITE: Final = "trixie"  # Debian's Python 3.13 and PostgreSQL 17
# nginx reads the addresses of a name again since 1.27.3, so its stand-in is from a newer Debian.
NGINX: Final = """\
FROM {base}
RUN sed -i 's/^deb /deb [check-valid-until=no] /; s/ {suite} / forky /' /etc/apt/sources.list \\
    && apt-get update -q && apt-get install -qy --no-install-recommends nginx
CMD ["nginx", "-g", "daemon off;"]
"""
POSTGRES: Final = """\
FROM {base}
RUN apt-get update -q && apt-get install -qy --no-install-recommends postgresql-17
ENV PATH=/usr/lib/postgresql/17/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY start.sh /start.sh
CMD ["sh", "/start.sh"]
"""
POSTGRES_START: Final = """\
set -e
mkdir -p "$PGDATA" && chown postgres "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    su postgres -c "$(command -v initdb) -U $POSTGRES_USER --pwfile /tmp/password -A scram-sha-256 -D $PGDATA"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "create database $POSTGRES_DB" | su postgres -c "$(command -v postgres) --single -D $PGDATA postgres"
fi
exec su postgres -c "exec $(command -v postgres) -D $PGDATA -c listen_addresses=\\*"
"""


class CheckError(Exception):
    """A check of the running services failed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Tests deploy/compose with Docker.")
    parser.add_argument("--stand-ins", type=Path, metavar="FOLDER", help="make missing base images in this folder")
    args = parser.parse_args()
    if args.stand_ins:
        make_stand_ins(args.stand_ins.absolute())
    report(f"builds the image from {ROOT / 'Dockerfile'}")
    docker("build", "--quiet", "--network", "host", "--tag", "antiphon", str(ROOT))
    try:
        with services():
            for check in CHECKS:
                started = time.monotonic()
                result = check()
                report(f"passed in {time.monotonic() - started:.1f} s: {check.__doc__} {result or ''}".rstrip())
    except CheckError as error:
        sys.exit(f"failed: {error}")


def report(line: str) -> None:
    print(line, flush=True)


# Docker


def docker(*arguments: str) -> str:
    """Runs `docker` and returns what it prints. Without the plugin for builds, the builder of the daemon is used."""
    return _run(["docker", *arguments], {} if _has_plugin("buildx") else {"DOCKER_BUILDKIT": "0"})


def compose(*arguments: str, check: bool = True) -> str:
    """Runs `docker compose` on the file of the repository."""
    command = ["docker", "compose"] if _has_plugin("compose") else ["docker-compose"]
    variables = {"GATEWAY_KEY": KEY, "DATABASE_PASSWORD": KEY[::-1]}
    return _run([*command, "--project-name", PROJECT, "--file", str(COMPOSE), *arguments], variables, check=check)


def _has_plugin(name: str) -> bool:
    return subprocess.run(["docker", name, "version"], capture_output=True, check=False).returncode == 0


def _run(command: list[str], variables: dict[str, str], *, check: bool = True) -> str:
    result = subprocess.run(command, env={**os.environ, **variables}, text=True, capture_output=True, check=False)
    if check and result.returncode:
        raise CheckError(f"{' '.join(command)} ended with {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


@contextmanager
def services() -> Iterator[None]:
    """Starts all services and waits until they are healthy. Removes them and their volumes at the end."""
    report(f"starts the services of {COMPOSE}")
    try:
        compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(START_LIMIT))
        yield
    except CheckError:
        report(compose("logs", "--tail", "40", check=False))
        raise
    finally:
        compose("down", "--volumes", "--timeout", "5", check=False)


def gateways() -> list[str]:
    """Returns the ids of the containers of the gateway."""
    return compose("ps", "--quiet", "gateway").split()


def turns_of(container: str) -> int:
    """Returns how many requests for a response a gateway has logged."""
    log = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True).stderr
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return sum(line.get("path") == "/v1/responses" and line.get("status") == 200 for line in lines)


# Requests to nginx


def request(method: str, path: str, body: object = None, *, key: str = KEY) -> tuple[int, Any]:
    """Sends a request on a connection of its own. Returns the status and the decoded answer."""
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=REQUEST_LIMIT)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        content = response.read()
    except OSError as error:
        raise CheckError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()
    return response.status, json.loads(content) if content.startswith(b"{") else content.decode()


def ask(text: str, **members: object) -> dict[str, Any]:
    """Returns the response to a question."""
    body = {"model": "local", "input": text, "max_output_tokens": 30, **members}
    status, response = request("POST", "/v1/responses", body)
    expect(status == 200, f"status {status} instead of 200: {response}")
    assert isinstance(response, dict)
    return response


def stream(text: str, on_event: Callable[[int], None] = lambda _: None) -> list[tuple[float, str]]:
    """Returns the type of every event of a stream, with the time of its arrival."""
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=REQUEST_LIMIT)
    body = {"model": "local", "input": text, "stream": True, "max_output_tokens": 120}
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/responses", json.dumps(body), headers)
    response = connection.getresponse()
    expect(response.status == 200, f"status {response.status} instead of 200")
    events: list[tuple[float, str]] = []
    while line := response.readline():
        if line.startswith(b"event: "):
            events.append((time.monotonic(), line[7:].decode().strip()))
            on_event(len(events))
    connection.close()
    return events


def status_of(path: str) -> int:
    return request("GET", path)[0]


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise CheckError(message)


def await_condition(condition: Callable[[], bool], message: str, limit: float = 40.0) -> float:
    """Waits until a condition holds, and returns the seconds that it took."""
    started = time.monotonic()
    while not condition():
        expect(time.monotonic() - started < limit, f"{message} within {limit:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - started


# Checks


def check_containers() -> None:
    """Both gateways are healthy, run as user 10001, and can write only to /data and /tmp."""
    expect(len(gateways()) == 2, f"{len(gateways())} gateways instead of 2")
    for container in gateways():
        state = json.loads(docker("inspect", container))[0]
        expect(state["State"]["Health"]["Status"] == "healthy", "a gateway is not healthy")
        expect(docker("exec", container, "id", "-u").strip() == "10001", "a gateway runs as another user")
        script = "touch /data/x && touch /tmp/x && ! touch /etc/x && ! touch /opt/antiphon/x"
        docker("exec", container, "sh", "-c", script)


def check_access() -> None:
    """nginx passes requests; a request without a valid key is refused."""
    expect(status_of("/readyz") == 200, "the gateways are not ready")
    status, _ = request("POST", "/v1/responses", {"model": "local", "input": QUESTION}, key="wrong")
    expect(status == 401, f"status {status} instead of 401")
    answer = json.dumps(ask(QUESTION)["output"])
    expect("Lima" in answer, f"unexpected answer: {answer}")


def check_stream() -> str:
    """A stream arrives event by event."""
    events = stream(LONG_QUESTION)
    expect(events[-1][1] in ENDS, f"it ended: {events[-1]}")
    deltas = [moment for moment, name in events if name == "response.output_text.delta"]
    spread = deltas[-1] - deltas[0]
    expect(spread > 0.2, f"all {len(deltas)} deltas arrived within {spread:.3f} s, so something buffers them")
    return f"({len(deltas)} deltas in {spread:.1f} s)"


def check_shared_state() -> None:
    """A conversation continues on either gateway."""
    before = {container: turns_of(container) for container in gateways()}
    previous = None
    for _ in range(8):
        previous = ask(QUESTION, **({"previous_response_id": previous} if previous else {}))["id"]
    turns = [turns_of(container) - count for container, count in before.items()]
    expect(min(turns) > 0, f"only one gateway answered: {turns}")


def check_killed_gateway() -> str:
    """After one gateway is killed, every request is answered, and stored responses can be continued."""
    stored = [ask(QUESTION)["id"] for _ in range(4)]
    docker("kill", gateways()[0])
    slowest = 0.0
    for response in stored * 3:
        started = time.monotonic()
        expect(status_of("/readyz") == 200, "the remaining gateway is not ready")
        ask(QUESTION, previous_response_id=response)
        slowest = max(slowest, time.monotonic() - started)
    return f"(slowest request {slowest:.1f} s)"


def check_returned_gateway() -> str:
    """A gateway that is started again gets requests without a change of nginx."""
    compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(START_LIMIT))
    before = {container: turns_of(container) for container in gateways()}
    expect(len(before) == 2, f"{len(before)} gateways instead of 2")

    def both_answer() -> bool:
        ask(QUESTION)
        return all(turns_of(container) > count for container, count in before.items())

    return f"(both answered after {await_condition(both_answer, 'one gateway got no request'):.1f} s)"


def check_database() -> str:
    """While the database is stopped, `/readyz` fails and `/livez` does not; then both work again."""
    compose("stop", "--timeout", "5", "database")
    down = await_condition(lambda: status_of("/readyz") == 503, "/readyz did not become 503")
    expect(status_of("/livez") == 200, "/livez failed too")
    compose("start", "database")
    up = await_condition(lambda: status_of("/readyz") == 200, "/readyz did not become 200")
    ask(QUESTION)
    return f"(503 after {down:.1f} s, 200 again after {up:.1f} s)"


def check_graceful_stop() -> str:
    """A stream ends completely although all gateways are told to stop in the middle of it."""
    stopping: list[subprocess.Popen[bytes]] = []

    def stop_after_five(count: int) -> None:
        if count == 5:
            command = ["docker", "stop", "-t", "30", *gateways()]
            stopping.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    names = [name for _, name in stream(LONG_QUESTION, stop_after_five)]
    for process in stopping:
        process.wait(60)
    expect(len(stopping) == 1, "the stream was too short")
    expect(names[-1] in ENDS, f"the stream ended with {names[-1]}")
    codes = [json.loads(docker("inspect", name))[0]["State"]["ExitCode"] for name in _all_gateways()]
    expect(codes == [0, 0], f"the gateways ended with {codes}")
    return f"({len(names)} events)"


def _all_gateways() -> list[str]:
    return compose("ps", "--all", "--quiet", "gateway").split()


CHECKS: Final = (
    check_containers,
    check_access,
    check_stream,
    check_shared_state,
    check_killed_gateway,
    check_returned_gateway,
    check_database,
    check_graceful_stop,
)


# Images for machines without a registry


def make_stand_ins(folder: Path) -> None:
    """Makes the images that the Dockerfile and compose.yaml name from Debian packages, where they are missing."""
    base = _word_after("ARG BASE=", ROOT / "Dockerfile")
    images = json.loads(compose("config", "--format", "json"))["services"]
    nginx, postgres = images["proxy"]["image"], images["database"]["image"]
    if not _has_image(base):
        _import_base(folder / SUITE, base)
    for name, text in ((nginx, NGINX), (postgres, POSTGRES)):
        if not _has_image(name):
            report(f"makes a stand-in for {name}")
            with tempfile.TemporaryDirectory() as context:
                Path(context, "Dockerfile").write_text(text.format(base=base, suite=SUITE), encoding="utf-8")
                Path(context, "start.sh").write_text(POSTGRES_START, encoding="utf-8")
                docker("build", "--quiet", "--network", "host", "--tag", name, context)


def _word_after(prefix: str, file: Path) -> str:
    return file.read_text(encoding="utf-8").partition(prefix)[2].split()[0]


def _has_image(name: str) -> bool:
    return bool(docker("images", "--quiet", name).strip())


def _import_base(root: Path, name: str) -> None:
    report(f"makes a stand-in for {name}")
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        packages = "python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(root)], check=True)
    for file in ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):  # a mirror, and its certificate
        if Path(file).is_file():
            shutil.copy(file, root / file.lstrip("/"))
    archive = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(["docker", "import", "-", name], stdin=archive.stdout, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
