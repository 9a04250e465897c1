"""Schemas of tools and of the output that expand to far more than their size: the gateway serves other requests
meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
from tests.hostile_schemas import (
    doubling_references,
    many_forms,
    many_parts,
    nested_all_of,
    object_of,
    output,
    references_to,
    tool,
    unknown_keywords,
)

from antiphon import testing
from antiphon.dialects.common.narrowing import narrow_schema
from antiphon.dialects.gemini.tools_out import OPENAPI_SUBSET, TOOL_SUBSET
from antiphon.dialects.messages.schemas import ENFORCED_SUBSET
from antiphon.errors import ApiError
from antiphon.protocol.losses import Losses
from antiphon.testing import ChatServer

pytestmark = pytest.mark.timed

SOON = 0.1  # seconds that `/health` may take on an idle machine
MEMORY = 50  # MiB allowed beyond the gateway's base
DECODED = 0.5  # seconds that are allowed while a body of up to ten megabytes is decoded
DECODED_MEMORY = 100  # and MiB
WORKER_MEMORY = 50  # MiB of a worker process before it decodes anything
NARROWED = 0.005  # seconds of the event loop that narrowing one schema may take
NOWHERE = "http://127.0.0.1:1/v1"  # no server listens there: a request that could be translated is a 502
#: An upstream of each dialect, with a profile that has to rewrite schemas where the dialect has one.
PROFILES = {"chat": "ollama", "responses": "openai", "messages": "anthropic", "gemini": "google"}
SUBSETS = {"TOOL_SUBSET": TOOL_SUBSET, "OPENAPI_SUBSET": OPENAPI_SUBSET, "ENFORCED_SUBSET": ENFORCED_SUBSET}
SCHEMAS = {
    "450 references to 5,000 members": references_to(object_of(5000)),
    "450 references to 5,000 unknown keywords": references_to(unknown_keywords(5000)),
    "450 references to 4,000 parts": references_to(many_parts(4000)),
    "nested allOf": nested_all_of(50, 300),
    "30 definitions that double": doubling_references(30),
    "30 definitions that double, described": doubling_references(30, description="x"),
    "5,000 forms": many_forms(5000),
}


@pytest.fixture(params=list(PROFILES))
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    lines = f'profile = "{PROFILES[request.param]}"'
    with gateway_process(tmp_path, NOWHERE, dialect=request.param, upstream=lines, memory_limit_mib=4096) as running:
        yield running


@contextmanager
def measured(gateway: GatewayProcess, wanted: float = SOON, memory: int = MEMORY) -> Iterator[None]:
    before = gateway.resident_mib()
    gateway.reset_peak()
    with health_prober(gateway) as health:
        yield
        peak = gateway.peak_resident_mib()
    print(f"worst /health {health.worst_seconds * 1000:.0f} ms, memory {before:.0f} → {peak:.0f} MiB")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * wanted
    assert peak - before < LOAD_FACTOR * memory


def is_translated_or_refused(gateway: GatewayProcess, param: str, **fields: Any) -> None:
    answer = gateway.post({"model": "mock-1", "input": "Hi", **fields})
    if answer.status_code != 502:
        assert answer.status_code == 400, answer.text[:500]
        error = answer.json()["error"]
        assert error["code"] == "invalid_value"
        assert re.fullmatch(param, error["param"])
    print(answer.status_code, end=" ")


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_tool_schema_does_not_block_the_gateway(gateway: GatewayProcess, name: str) -> None:
    with measured(gateway):
        for _ in range(3):
            is_translated_or_refused(gateway, r"tools\[0\]\.parameters", tools=[tool(SCHEMAS[name])])


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_output_schema_does_not_block_the_gateway(gateway: GatewayProcess, name: str) -> None:
    with measured(gateway):
        for _ in range(3):
            is_translated_or_refused(gateway, r"text\.format\.schema", text=output(SCHEMAS[name]))


@pytest.mark.parametrize("subset", ["TOOL_SUBSET", "OPENAPI_SUBSET", "ENFORCED_SUBSET"])
@pytest.mark.parametrize("name", list(SCHEMAS))
def test_schema_is_narrowed_or_refused_quickly(name: str, subset: str) -> None:
    began = time.thread_time()
    with suppress(ApiError):
        narrow_schema(SCHEMAS[name], SUBSETS[subset], "schema", Losses())
    took = time.thread_time() - began
    print(f"{name}, {subset}: {took * 1000:.1f} ms")
    assert took < LOAD_FACTOR * NARROWED


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_many_tools_do_not_block_the_gateway(gateway: GatewayProcess, choice: str) -> None:
    """As many tools as are allowed, each just below the limit for one."""
    tools = [tool(doubling_references(7, description="x"), number) for number in range(512)]
    with measured(gateway):
        is_translated_or_refused(gateway, r"tools(\[\d+\]\.parameters)?", tools=tools, tool_choice=choice)


def test_a_hundred_thousand_tools_are_refused_quickly(gateway: GatewayProcess) -> None:
    tools = [{"type": f"acme:{number}"} for number in range(100_000)]
    with measured(gateway, DECODED, DECODED_MEMORY):
        is_translated_or_refused(gateway, "tools", tools=tools)


@pytest.mark.parametrize("field", ["parameters", "parametersJsonSchema"])
def test_schema_of_a_gemini_client_does_not_block_the_gateway(tmp_path: Path, field: str) -> None:
    """Ten megabytes that are rewritten when decoded."""
    function = {"name": "f", field: object_of(300_000)}
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [{"functionDeclarations": [function]}]}
    with (
        gateway_process(tmp_path, NOWHERE, memory_limit_mib=4096) as gateway,
        measured(gateway, DECODED, DECODED_MEMORY),
    ):
        answer = gateway.post(body, "/v1beta/models/mock-1:generateContent")
        assert answer.status_code == 400
        assert "tools[0].functionDeclarations[0]." + field in answer.text


def test_diagnosis_of_a_refused_schema_does_not_block_the_gateway(tmp_path: Path) -> None:
    """A strict schema of almost a megabyte, the largest body that is diagnosed."""
    names = [f"m{number}" for number in range(40_000)]
    schema = {
        "type": "object",
        "properties": {name: {} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    with ChatServer([testing.error(400, "no such schema")] * 3) as upstream:
        with (
            gateway_process(tmp_path, upstream.base_url, memory_limit_mib=4096) as gateway,
            measured(gateway, DECODED, DECODED_MEMORY),
        ):
            for _ in range(3):
                answer = gateway.post({"model": "mock-1", "input": "Hi", "tools": [tool(schema)]})
                assert answer.status_code == 400


def test_token_count_of_a_schema_does_not_block_the_gateway(tmp_path: Path) -> None:
    """Ten megabytes, for an upstream that does not count tokens itself."""
    body = {"model": "mock-1", "input": "Hi", "tools": [tool(object_of(300_000))]}
    with (
        gateway_process(tmp_path, NOWHERE, memory_limit_mib=4096) as gateway,
        measured(gateway, DECODED, DECODED_MEMORY + WORKER_MEMORY),
    ):
        answer = gateway.post(body, "/v1/responses/input_tokens")
        assert answer.status_code == 200, answer.text[:500]
