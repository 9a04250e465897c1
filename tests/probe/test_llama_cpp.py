"""A real server with three endpoints: llama.cpp's own, and the profiles that follow from its findings. It takes
minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.probe.probe_runs import make_target, run_probe
from tests.running import one_upstream, running

from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.probe.run import ProbeReport
from antiphon.profiles import load_profile, parse_profile
from antiphon.upstream.embedded import EmbeddedModel

pytestmark = pytest.mark.heavy
SLOW = Timeouts(connect=5.0, first_byte=120.0, idle=120.0, total=240.0)


def _probed(model: EmbeddedModel, dialect: ServerDialectName, folder: Path) -> tuple[ProbeReport, Any]:
    report, findings = run_probe(make_target(model.base_url, dialect, model="local", key=model.key, timeouts=SLOW))
    assert report.stopped == ""
    assert {
        id: each.detail for id, each in findings.items() if id.startswith("proof.") and each.verdict != "accepted"
    } == {}
    file = folder / "probed.toml"
    file.write_text(report.profile, encoding="utf-8")
    config = one_upstream(model.base_url, dialect=dialect, profile=str(file), api_key_env="KEY")
    with running(config, environ={"KEY": model.key}) as gateway:
        answer = gateway.post({"model": "local", "input": "Say hello.", "max_output_tokens": 16})
        assert answer.status_code == 200
    return report, parse_profile(report.profile, "probed", find_parent=load_profile)


def test_llama_cpp_responses_endpoint_gives_the_shipped_profile(llama_cpp: EmbeddedModel, tmp_path: Path) -> None:
    """D-4."""
    _, profile = _probed(llama_cpp, "responses", tmp_path)
    shipped = load_profile("llama.cpp")
    assert [quirk.name for quirk in profile.quirks] == ["assistant_as_string", "open_reasoning", "media_as_notes"]
    for name in ("extension_tools", "counts_tokens", "cut", "lacks"):
        assert getattr(profile.wire, name) == getattr(shipped.wire, name)


def test_llama_cpp_chat_endpoint_gives_a_profile_with_schema_forced_tools(
    llama_cpp: EmbeddedModel, tmp_path: Path
) -> None:
    """D-4."""
    _, profile = _probed(llama_cpp, "chat", tmp_path)
    wire = profile.wire
    assert (wire.images, wire.free_tools, wire.forced_tools, wire.json_output) == (
        False,
        False,
        "schema",
        "json_schema",
    )
    assert wire.counts_tokens


def test_llama_cpp_messages_endpoint_gives_a_profile_without_images(llama_cpp: EmbeddedModel, tmp_path: Path) -> None:
    """D-4."""
    _, profile = _probed(llama_cpp, "messages", tmp_path)
    wire = profile.wire
    assert (wire.images, wire.json_output, wire.counts_tokens, wire.unsigned_thinking) == (False, "none", True, True)
