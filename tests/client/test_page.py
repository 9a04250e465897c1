"""`docs/client.md`: its Python code runs from top to bottom, against a gateway before a scripted server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.client.conversing import gateway

from antiphon import client, testing
from antiphon.testing import ReceivedRequest, Reply, turn

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")


def answer(received: ReceivedRequest) -> Reply:
    messages = received.json["messages"]
    if received.json.get("tools") and messages[-1]["role"] != "tool":
        return turn(testing.tool_call("call_1", "weather", '{"city": "Lima"}'))
    return turn(testing.text("One ", "two ", "three."))


@pytest.mark.io
def test_page_python_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B-9."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    with gateway(answer, store=f"sqlite:///{tmp_path}/store.db") as running:
        monkeypatch.setenv("ANTIPHON_URL", running.url)
        monkeypatch.chdir(tmp_path)
        names: dict[str, object] = {"__name__": "__docs__"}
        exec(compile("\n".join(blocks), "client.md", "exec"), names)
        for each in names.values():
            if isinstance(each, client.Client):
                each.close()
    output = capsys.readouterr().out
    assert '[(\'weather\', \'{"city":"Lima","days":1,"sky":"clear"}\')]' in output
    assert output.count("One two three.") >= 5
    assert "not_found not_found 404" in output


def test_page_names_every_public_method() -> None:
    public = {name for name in vars(client.AsyncClient) if not name.startswith("_")}
    assert {name for name in public if f"`{name}(" not in PAGE} == set()
