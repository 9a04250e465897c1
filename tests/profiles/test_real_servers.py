"""The shipped profiles of real servers, by the bodies that are sent with them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.probe.servers import vercel
from tests.running import one_upstream, running

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ProfileError
from antiphon.profiles import load_profile
from antiphon.protocol.codec import decode_request

HISTORY = [
    {"type": "message", "role": "system", "content": "Be brief."},
    {"type": "message", "role": "user", "content": "What time is it, and where?"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me check the time."}]},
    {"type": "function_call", "call_id": "call_123", "name": "get_time", "arguments": "{}"},
    {"type": "function_call", "call_id": "call_124", "name": "get_place", "arguments": '{"near": true}'},
    {"type": "function_call_output", "call_id": "call_123", "output": "The current time is 3:00 PM"},
    {"type": "function_call_output", "call_id": "call_124", "output": "Rome"},
    {"type": "message", "role": "developer", "content": "Be kind."},
    {"type": "message", "role": "system", "content": "Be honest."},
]


def sent(profile_name: str, **request: Any) -> dict[str, Any]:
    """The body that a server receives."""
    profile = load_profile(profile_name)
    prepared, _ = profile.apply_quirks(decode_request(msgspec.json.encode({"model": "m", **request})))
    body, _ = SERVER_DIALECTS[profile.dialect].request_from_hub(prepared, profile.wire)
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def test_vercel_profile_sends_strings_and_tool_history_as_text() -> None:
    """D-1, D-2: instructions for system messages, developer unchanged, calls and results as text."""
    body = sent("vercel-ai-gateway-2026-01", input=HISTORY)
    assert body["instructions"] == "Be brief."
    entries = [(item["role"], item["content"]) for item in body["input"]]
    assert {item["type"] for item in body["input"]} == {"message"}
    assert entries == [
        ("user", "What time is it, and where?"),
        (
            "assistant",
            "Let me check the time.\n\n[Tool Call: get_time({}) -> call_id: call_123]\n\n"
            '[Tool Call: get_place({"near": true}) -> call_id: call_124]',
        ),
        ("user", "[Tool Result for call_123]: The current time is 3:00 PM"),
        ("user", "[Tool Result for call_124]: Rome"),
        ("developer", "Be kind."),
        ("developer", "Be honest."),
    ]


@pytest.mark.io
def test_vercel_profile_makes_a_refused_history_accepted() -> None:
    """D-1: the same history, with the profile and without."""
    body = {"model": "mock-1", "input": HISTORY, "tools": [{"type": "function", "name": "get_time"}]}
    with vercel() as server:
        with running(one_upstream(server.base_url, dialect="responses", profile="open-responses")) as gateway:
            assert gateway.post(body).status_code == 400
        server.refusals.clear()
        with running(
            one_upstream(server.base_url, dialect="responses", profile="vercel-ai-gateway-2026-01")
        ) as gateway:
            assert gateway.post(body).json()["status"] == "completed"
        assert server.refusals == []


def test_ccr_profile_sends_results_as_blocks_of_one_user_message() -> None:
    """E-2, E-4: with their ids, after the calls; cache hints are removed."""
    hinted = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "x", "cache_control": {"type": "e"}}],
    }
    body = sent("ccr-tool-result", input=[*HISTORY[:7], hinted])
    assert body["instructions"] == "Be brief."
    assert [item["type"] for item in body["input"]] == [
        "message",
        "message",
        "function_call",
        "function_call",
        "message",
        "message",
    ]
    assert body["input"][4]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_123", "content": "The current time is 3:00 PM"},
        {"type": "tool_result", "tool_use_id": "call_124", "content": "Rome"},
    ]
    assert body["input"][5]["content"] == [{"type": "input_text", "text": "x"}]


@pytest.mark.parametrize("name", ["llama.cpp", "vllm", "ollama", "openrouter", "groq", "deepseek", "azure"])
def test_profiles_of_common_servers_exist(name: str) -> None:
    """D-1."""
    assert load_profile(name).name == name


def test_removed_profile_name_suggests_the_remaining_one() -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'llama-cpp'; did you mean 'llama\.cpp'\?"):
        load_profile("llama-cpp")


def test_ollama_profile_forces_a_tool_by_a_schema() -> None:
    tool = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
    body = sent("ollama", input="hi", tools=[tool], tool_choice="required")
    assert "tool_choice" not in body
    assert body["response_format"]["type"] == "json_schema"


def test_server_specific_settings_are_passed() -> None:
    """REQ-7."""
    assert sent("vllm", input="hi", top_k=5)["top_k"] == 5
    assert sent("openrouter", input="hi", provider={"order": ["a"]})["provider"] == {"order": ["a"]}
    wire = load_profile("openrouter").wire
    assert isinstance(wire, ChatWire)
    assert wire.reasoning_field == "reasoning"


def test_azure_profile_is_openai_with_another_key_header() -> None:
    azure, maker = load_profile("azure"), load_profile("openai")
    assert (azure.key_header, azure.wire) == ("api-key", maker.wire)


@pytest.mark.parametrize("profile", ["openai", "azure"])
@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1-nano", "gpt-3.5-turbo", "chatgpt-4o-latest", "ft:gpt-4o-mini:acme::1"]
)
def test_encrypted_reasoning_is_not_requested_from_listed_models_without_reasoning(profile: str, model: str) -> None:
    assert "include" not in sent(profile, model=model, input="Hi")


@pytest.mark.parametrize("profile", ["openai", "azure"])
@pytest.mark.parametrize("model", ["gpt-5", "o3", "ft:o4-mini:acme::1", "our-deployment"])
def test_encrypted_reasoning_is_requested_from_all_other_models(profile: str, model: str) -> None:
    assert sent(profile, model=model, input="Hi")["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(("effort", "expected"), [("none", "none"), ("low", "high"), ("high", "high")])
def test_mistral_profile_sends_the_effort_and_the_cache_key(effort: str, expected: str) -> None:
    """Its models accept two efforts."""
    body = sent("mistral", input="hi", reasoning={"effort": effort}, prompt_cache_key="k", seed=1, user="u")
    assert (body["reasoning_effort"], body["prompt_cache_key"]) == (expected, "k")
    assert not {"seed", "user", "stream_options"} & body.keys()


def test_openrouter_profile_sends_what_its_server_takes() -> None:
    """Its own tools, videos, cache marks, earlier reasoning, and the settings of its routing."""
    parts = [
        {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "input_video", "video_url": "https://a.example/v.mp4"},
    ]
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    history = [
        {"type": "message", "role": "user", "content": parts},
        thought,
        {"type": "message", "role": "assistant", "content": "Hello."},
        {"type": "message", "role": "user", "content": "More."},
    ]
    tool = {"type": "openrouter:web_search", "parameters": {"max_results": 3}}
    settings = {"provider": {"order": ["a"]}, "models": ["b"], "top_k": 5, "reasoning": {"effort": "high"}}
    body = sent("openrouter", input=history, tools=[tool], **settings)
    first, answer, _ = body["messages"]
    assert first["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert first["content"][1] == {"type": "video_url", "video_url": {"url": "https://a.example/v.mp4"}}
    assert answer == {"role": "assistant", "content": "Hello.", "reasoning": "Hm."}
    assert body["tools"] == [tool]
    assert {name: body[name] for name in ("provider", "models", "top_k")} == {
        "provider": {"order": ["a"]},
        "models": ["b"],
        "top_k": 5,
    }
    assert "high" in (body.get("reasoning_effort"), body.get("reasoning", {}).get("effort"))
