"""Limits of servers that the probe finds, and how the gateway works with the profile that it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.probe.agreeable_server import URL, AgreeableServer
from tests.probe.probe_runs import make_target, run_probe
from tests.probe.servers import Constrained, Constraint
from tests.running import one_upstream, running

from antiphon.dialects.dialect import ServerDialectName
from antiphon.profiles import load_profile
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.harness import DialectBehavior, FakeServer
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.ollama.server import OllamaBehavior
from antiphon.testing.responses.server import ResponsesBehavior

Body = dict[str, Any]
BEHAVIORS: Final[dict[ServerDialectName, Callable[[], DialectBehavior]]] = {
    "responses": ResponsesBehavior,
    "chat": ChatBehavior,
    "messages": MessagesBehavior,
    "gemini": GeminiBehavior,
    "ollama": OllamaBehavior,
}


def _functions(body: Body) -> list[Body]:
    tools = body.get("tools") or []
    functions = [tool.get("functionDeclarations", [tool.get("function", tool)]) for tool in tools]
    return [function for group in functions for function in group]


def _strings(value: Any, names: tuple[str, ...]) -> list[str]:
    """The strings under these names, at any depth."""
    match value:
        case dict():
            own = [each for name, each in value.items() if name in names and isinstance(each, str)]
            return own + [text for each in value.values() for text in _strings(each, names)]
        case list():
            return [text for each in value for text in _strings(each, names)]
        case _:
            return []


def _call_ids(body: Body) -> list[str]:
    history = {name: body[name] for name in ("input", "messages", "contents") if name in body}
    return _strings(history, ("call_id", "tool_call_id", "tool_use_id"))


def _name_lengths(body: Body) -> list[int]:
    return [len(function.get("name", "")) for function in _functions(body)]


LIMITED: Final = [
    Constraint(name="at most 40 tools", refuses=lambda body: len(_functions(body)) > 40, shows={}),
    Constraint(name="names of 30 characters", refuses=lambda body: max(_name_lengths(body), default=0) > 30, shows={}),
    Constraint(name="ids of 24 characters", refuses=lambda body: any(len(id) > 24 for id in _call_ids(body)), shows={}),
]
#: What the profile has for these limits.
SETTINGS: Final[dict[ServerDialectName, tuple[dict[str, int], int | None]]] = {
    "responses": ({"limit_tools": 40, "shorten_call_ids": 24}, 30),
    "chat": ({"limit_tools": 40, "shorten_call_ids": 24}, 30),
    "messages": ({"limit_tools": 40, "shorten_call_ids": 24}, 30),
    "gemini": ({"limit_tools": 40}, 30),
    "ollama": ({"limit_tools": 40}, None),
}


@pytest.mark.io
@pytest.mark.parametrize("dialect", SETTINGS)
def test_limits_of_tools_are_found_and_kept(dialect: ServerDialectName, tmp_path: Path) -> None:
    """D-4: their number, the length of names, and the length of the ids of calls."""
    limits = LIMITED if dialect != "ollama" else LIMITED[:1]
    quirks, name_length = SETTINGS[dialect]
    with FakeServer(Constrained(BEHAVIORS[dialect](), limits, dialect), None) as server:
        url = server.base_url.removesuffix("/v1") if dialect == "ollama" else server.base_url
        report, findings = run_probe(make_target(url, dialect))
        assert (findings["limit.tools"].limit, findings["limit.tools"].verdict) == (40, "refused")
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        profile = load_profile(file)
        options: dict[str, Any] = {quirk.name: quirk.options for quirk in profile.quirks}
        assert {name: options[name].limit for name in quirks} == quirks
        assert getattr(profile.wire, "max_name_length", None) == name_length
        server.refusals.clear()
        with running(one_upstream(url, dialect=dialect, profile=str(file))) as gateway:
            many = [{"type": "function", "name": f"f{number}"} for number in range(41)]
            refused = gateway.post({"model": "mock-1", "input": "Hi", "tools": many})
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, "tools")
            assert error["message"] == "tools: expected at most 40 tools, got 41"
            name, call_id = "look_" + "x" * 55, "call_" + "x" * 55
            history = [
                {"type": "message", "role": "user", "content": f"Call {name}."},
                {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"},
                {"type": "function_call_output", "call_id": call_id, "output": "1"},
                {"type": "message", "role": "user", "content": f"Call {name} again."},
            ]
            tool = {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
            answer = gateway.post({"model": "mock-1", "input": history, "tools": [tool], "tool_choice": "auto"})
            assert answer.status_code == 200, answer.text
        assert [refusal.body for refusal in server.refusals] == []


@pytest.mark.parametrize("dialect", SETTINGS)
def test_server_without_limits_gets_none(dialect: ServerDialectName) -> None:
    report, findings = run_probe(make_target(URL, dialect), AgreeableServer(dialect))
    assert (findings["limit.tools"].verdict, findings["limit.tools"].limit) == ("accepted", None)
    assert "limit" not in report.profile.partition("#")[0]


#: Two settings of one dialect, either of which could be the cause if a request with both is refused.
PAIRS: Final[list[tuple[ServerDialectName, str, str]]] = [
    ("chat", "temperature", "top_p"),
    ("chat", "presence_penalty", "frequency_penalty"),
    ("chat", "stop", "seed"),
    ("chat", "user", "metadata"),
    ("chat", "service_tier", "verbosity"),
    ("chat", "prompt_cache_key", "safety_identifier"),
    ("responses", "temperature", "top_p"),
    ("responses", "presence_penalty", "frequency_penalty"),
    ("responses", "metadata", "include"),
    ("responses", "truncation", "store"),
    ("responses", "service_tier", "user"),
    ("responses", "max_tool_calls", "parallel_tool_calls"),
    ("responses", "text.verbosity", "prompt_cache_key"),
    ("messages", "temperature", "top_k"),
    ("messages", "stop_sequences", "metadata"),
    ("messages", "top_p", "service_tier"),
    ("gemini", "temperature", "topP"),
    ("gemini", "topK", "seed"),
    ("gemini", "stopSequences", "presencePenalty"),
    ("ollama", "temperature", "top_p"),
    ("ollama", "stop", "seed"),
]


@pytest.mark.parametrize(("dialect", "one", "other"), PAIRS)
def test_of_two_settings_only_the_refused_one_is_blamed(dialect: ServerDialectName, one: str, other: str) -> None:
    """D-4: each is tried alone if a request with both is refused."""
    for refused, accepted in ((one, other), (other, one)):
        server = AgreeableServer(dialect, refused=(f"field.{refused}",))
        _, findings = run_probe(make_target(URL, dialect), server)
        verdicts = {name: findings[f"field.{name}"].verdict for name in (refused, accepted)}
        assert verdicts == {refused: "refused", accepted: "accepted"}


@pytest.mark.io
def test_settings_that_are_refused_only_together_are_not_blamed() -> None:
    both = Constraint(name="both", refuses=lambda body: "temperature" in body and "top_p" in body, shows={})
    with FakeServer(Constrained(MessagesBehavior(), [both], "messages"), None) as server:
        _, findings = run_probe(make_target(server.base_url, "messages"))
    assert {findings[f"field.{name}"].verdict for name in ("temperature", "top_p")} == {"accepted"}
    assert (findings["field.together"].verdict, findings["samplings"].verdict) == ("refused", "refused")
    assert "each is accepted alone" in findings["field.together"].detail
