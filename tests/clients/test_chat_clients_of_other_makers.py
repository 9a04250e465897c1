"""Chat clients of other vendors than the API's, by the bodies that their SDKs send."""

from __future__ import annotations

from typing import Any

import pytest
from tests.running import one_upstream, running

from antiphon import testing
from antiphon.testing import ChatServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "d", "parameters": SCHEMA}
# mistralai 1.5.0 (Python): `Mistral(...).chat.complete(model=…, messages=…, tools=[{"function": …}], tool_choice=…)`.
MISTRAL: dict[str, Any] = {
    "messages": [{"content": "Weather in Paris?", "role": "user"}],
    "model": "mistral-small",
    "stream": False,
    "tools": [{"function": {**WEATHER, "strict": False}}],
}
# huggingface_hub 2.4.0: `InferenceClient(...).chat_completion(..., tool_choice={"function": {"name": "weather"}})`.
HUGGING_FACE: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Weather in Paris?"}],
    "max_tokens": 100,
    "tools": [{"type": "function", "function": WEATHER}],
    "stream": False,
}
NAMED = {"function": {"name": "weather"}}
CHOSEN = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("body", "choice", "sent"),
    [
        (MISTRAL, "any", "required"),
        (MISTRAL, "auto", "auto"),
        (MISTRAL, NAMED, CHOSEN),
        (HUGGING_FACE, NAMED, CHOSEN),
        (HUGGING_FACE, "required", "required"),
    ],
)
def test_tools_and_choices_without_a_type_are_accepted(body: dict[str, Any], choice: Any, sent: Any) -> None:
    """TOOL-1, TOOL-2: the server receives them in the form of the API, and nothing is lost."""
    answer = turn(testing.tool_call("call_1", "weather", '{"city": "Paris"}'))
    with ChatServer([answer]) as server, running(one_upstream(server.base_url)) as gateway:
        answered = gateway.post({**body, "tool_choice": choice}, "/v1/chat/completions", antiphon_losses="strict")
        assert answered.status_code == 200, answered.text
        calls = answered.json()["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == ['{"city": "Paris"}']
        asked = server.received[0].json
        function = {**WEATHER, "strict": False} if body is MISTRAL else WEATHER
        assert asked["tools"] == [{"type": "function", "function": function}]
        assert asked["tool_choice"] == sent
