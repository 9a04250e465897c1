"""A real but incomplete server of this API: llama.cpp's own endpoint alone, and the same through the gateway.

A real model answers, so only cases with small requests are run."""

from __future__ import annotations

import httpx2
import pytest
from tests.check.servers import check
from tests.running import one_upstream, running

from antiphon.check.findings import Flaw
from antiphon.check.stream import judge_stream
from antiphon.upstream.embedded import EmbeddedModel

pytestmark = pytest.mark.io
QUICK = (
    "http.broken-json",
    "http.no-object",
    "error.shape",
    "error.type",
    "error.param",
    "error.wrong-type",
    "tools.nested",
    "previous.unknown",
    "limits.max-output-tokens",
    "limits.metadata-pairs",
)


def test_llama_cpp_alone_fails_with_actionable_messages(llama_cpp: EmbeddedModel) -> None:
    """STR-5, HTTP-4, STR-2, ERR-1, ERR-3, TOOL-1, PREV-3"""
    flaws = [f"{flaw.row}: {flaw.message}" for flaw in _stream_flaws(llama_cpp.base_url, llama_cpp.key)]
    assert "HTTP-4: the stream ends without `data: [DONE]`; expected it as the last line" in flaws
    assert "STR-5: response.created: sequence_number is missing: expected an integer" in flaws
    assert "STR-2: response.output_item.added: output_index is missing: expected an integer" in flaws
    outcomes = check(llama_cpp.base_url, QUICK, key=llama_cpp.key, model="local")
    assert {outcome.verdict for outcome in outcomes.values()} == {"fail"}
    assert "error.param is missing" in outcomes["error.shape"].findings[0].message
    assert all(finding.sent and finding.received for outcome in outcomes.values() for finding in outcome.findings)


def test_llama_cpp_through_the_gateway_passes(llama_cpp: EmbeddedModel) -> None:
    config = one_upstream(llama_cpp.base_url, dialect="responses", profile="llama.cpp", api_key_env="LLAMA_KEY")
    with running(config, environ={"LLAMA_KEY": llama_cpp.key}) as gateway:
        assert _stream_flaws(f"{gateway.url}/v1", "any") == []
        outcomes = check(
            f"{gateway.url}/v1",
            [*QUICK, "limits.call-id", "input.string", "usage.stream", "settings.unknown"],
            model="local",
        )
        image = check(f"{gateway.url}/v1", ["input.image"], model="local")["input.image"]
    assert {id: outcome.findings for id, outcome in outcomes.items() if outcome.verdict != "pass"} == {}
    assert (image.verdict, image.findings) == ("skip", [])  # it does not support images, and reports that


def _stream_flaws(url: str, key: str) -> list[Flaw]:
    body = {"model": "local", "input": "Say hello.", "stream": True, "temperature": 0, "max_output_tokens": 64}
    answer = httpx2.post(f"{url}/responses", json=body, headers={"authorization": f"Bearer {key}"}, timeout=120)
    assert answer.status_code == 200
    return judge_stream(answer.content).flaws
