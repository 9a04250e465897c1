"""`examples/agent.py` works as documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.producer.served import serving

from antiphon.producer.serving import load_agent

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_example_agent_lists_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-5, B-3: an agent in fewer than sixty lines."""
    assert len((EXAMPLES / "agent.py").read_text().splitlines()) < 60
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    agent = load_agent("agent:listing", str(EXAMPLES))
    with serving(agent) as gateway:
        response = gateway.post({"model": "listing", "input": "What is in src?"}).json()
        _, look, message = response["output"]
        assert (look["type"], look["found"]) == ("example:look", 1)
        assert message["content"][0]["text"] == "src contains: a.py, and nothing else."
        outside = gateway.post({"model": "listing", "input": "What is in ../../?"}).json()
        assert "nothing that this agent may read" in outside["output"][-1]["content"][0]["text"]
        assert gateway.post({"model": "listing", "input": "?"}).status_code == 400
