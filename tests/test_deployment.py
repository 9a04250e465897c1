"""The files for containers: they agree with each other, with the configuration and with the routes of the gateway."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from antiphon.api.routes import ROUTES
from antiphon.config import load_config

REPO = Path(__file__).resolve().parent.parent
COMPOSE = REPO / "deploy" / "compose"
KUBERNETES = REPO / "deploy" / "kubernetes"
DOCKERFILE = (REPO / "Dockerfile").read_text(encoding="utf-8")
KEYS = {"GATEWAY_KEY": "0123456789abcdef0123456789abcdef"}


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", [COMPOSE, KUBERNETES])
def test_configuration_is_valid_and_listens_on_the_exposed_port(folder: Path) -> None:
    config = load_config(folder / "antiphon.toml", KEYS)
    assert f"EXPOSE {config.server.port}\n" in DOCKERFILE
    assert config.server.host == "0.0.0.0"
    assert config.store.url is not None
    assert config.store.url.startswith("postgresql://")


def test_image_is_built_from_files_that_are_not_ignored() -> None:
    copied = {word for line in re.findall(r"^COPY ([^-].*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]}
    included = set(re.findall(r"^!(\S+)$", (REPO / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert copied == included
    assert all((REPO / name).exists() for name in copied)


def test_image_runs_without_root() -> None:
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    security = _yaml(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]["securityContext"]
    assert (security["runAsUser"], security["runAsNonRoot"]) == (10001, True)


def test_probes_use_paths_of_the_gateway() -> None:
    container = _yaml(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    probes = {container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe", "startupProbe")}
    probes |= set(re.findall(r"127\.0\.0\.1:8080(/\w+)", DOCKERFILE))
    assert probes == {"/readyz", "/livez"}
    assert probes <= set(ROUTES)


def test_pods_have_time_to_stop() -> None:
    pod = _yaml(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]
    server = load_config(KUBERNETES / "antiphon.toml", KEYS).server
    assert pod["terminationGracePeriodSeconds"] > server.shutdown_delay + server.grace


def test_containers_have_time_to_stop() -> None:
    seconds = int(_yaml(COMPOSE / "compose.yaml")["services"]["gateway"]["stop_grace_period"].removesuffix("s"))
    server = load_config(COMPOSE / "antiphon.toml", KEYS).server
    assert seconds > server.shutdown_delay + server.grace


def test_nginx_passes_streams_and_leaves_a_dead_gateway_soon() -> None:
    # The address of a killed container does not refuse a connection; it does not answer.
    settings = dict(re.findall(r"^\s*(proxy_\w+) (\S+);", (COMPOSE / "nginx.conf").read_text("utf-8"), re.MULTILINE))
    assert (settings["proxy_connect_timeout"], settings["proxy_buffering"]) == ("1s", "off")


def test_nginx_is_new_enough_to_resolve_names_again() -> None:
    image = _yaml(COMPOSE / "compose.yaml")["services"]["proxy"]["image"]
    assert "server gateway:8080 resolve;" in (COMPOSE / "nginx.conf").read_text("utf-8")
    assert tuple(map(int, image.removeprefix("nginx:").split("."))) >= (1, 28)  # 1.27.3 was the first


def test_configuration_is_mounted_where_the_image_reads_it() -> None:
    path = re.findall(r'"--config", "([^"]+)"', DOCKERFILE)
    page = (REPO / "docs" / "containers.md").read_text("utf-8")
    volumes = _yaml(COMPOSE / "compose.yaml")["services"]["gateway"]["volumes"]
    assert re.findall(r"^docker run .* -v \./antiphon\.toml:(\S+):ro ", page, re.MULTILINE) == path
    assert f"./antiphon.toml:{path[0]}:ro" in volumes


def test_secrets_are_references_only() -> None:
    services = _yaml(COMPOSE / "compose.yaml")["services"]
    variables = {**services["gateway"]["environment"], **services["database"]["environment"]}
    secrets = [value for name, value in variables.items() if re.search("KEY|PASSWORD", name)]
    assert len(secrets) == 4
    assert all(re.fullmatch(r"\$\{\w+:[?-].*\}", value) for value in secrets)
    assert _yaml(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "antiphon"}}
    ]


def test_kustomization_names_every_manifest() -> None:
    kustomization = _yaml(KUBERNETES / "kustomization.yaml")
    manifests = {file.name for file in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == manifests
    assert all(_yaml(KUBERNETES / name)["metadata"]["name"] == "antiphon" for name in manifests)
