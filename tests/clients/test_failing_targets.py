"""The openai SDK, unmodified, over a first target that fails: it sees one answer, and no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from tests.faults.routing_lab import FAULTS, RoutingLab, fault_reply, routing_lab

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
BEFORE_CONTENT = [fault for fault in FAULTS if fault != "cut_after_content"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutingLab]:
    folder: Path = tmp_path_factory.mktemp("store")
    with routing_lab(folder) as running_lab:
        yield running_lab


@pytest.mark.parametrize("server", ["chat", "messages"])
@pytest.mark.parametrize("fault", BEFORE_CONTENT)
def test_sdk_reads_the_answer_of_the_second_target(lab: RoutingLab, fault: str, server: str) -> None:
    lab.reply = fault_reply(server, fault, stream=True)
    model = f"{server}+{server}" + ("-refused" if fault == "refused" else "")
    client = OpenAI(base_url=f"{lab.gateway.url}/v1", api_key="any", max_retries=0)
    with client.responses.stream(model=model, input=f"Hi from {fault}.") as stream:
        events = [event.type for event in stream]
        response = stream.get_final_response()
    assert (response.status, response.output_text) == ("completed", "Second.")
    assert events.count("response.created") == events.count("response.completed") == 1
    chunks = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": f"Hello from {fault}."}], stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Second."
