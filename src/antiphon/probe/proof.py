"""Make the requests that test a drafted profile: a few turns that use every feature, as the gateway writes them.

Turns that the profile refuses, such as JSON output on a server without it, are left out.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ApiError
from antiphon.probe.finding import Body
from antiphon.probe.samples import ARGUMENTS, CITY, HELLO, PERSON, PERSON_AS_JSON, PNG, WEATHER_IN_PARIS
from antiphon.profiles import Profile
from antiphon.protocol.codec import decode_request


class ProofRequest(NamedTuple):
    id: str
    title: str
    body: Any
    streams: bool


def make_proofs(profile: Profile, model: str) -> list[ProofRequest]:
    """Return every turn that the profile can send, in the server's dialect."""
    proofs: list[ProofRequest] = []
    for name, turn in TURNS.items():
        streams = bool(turn.get("stream"))
        request, _ = profile.apply_quirks(
            decode_request(msgspec.json.encode({"model": model, "max_output_tokens": 64, **turn}))
        )
        try:
            body, _ = SERVER_DIALECTS[profile.dialect].request_from_hub(request, profile.wire)
        except ApiError:
            continue
        proofs.append(ProofRequest(f"proof.{name}", f"with the profile: {name}", msgspec.json.decode(body), streams))
    return proofs


def _call(id: str) -> Body:
    return {"type": "function_call", "call_id": id, "name": "get_weather", "arguments": ARGUMENTS}


def _output(id: str) -> Body:
    return {"type": "function_call_output", "call_id": id, "output": "Sunny, 21 degrees."}


WEATHER_TOOL: Final[Body] = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": CITY,
    "strict": True,
}
CONVERSATION: Final[list[Body]] = [
    {"type": "message", "role": "system", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"type": "message", "role": "developer", "content": "Be polite."},
    {"type": "message", "role": "user", "content": HELLO},
]
TURNS: Final[dict[str, Body]] = {
    "conversation": {"input": CONVERSATION, "instructions": "Answer in English."},
    "stream": {"input": CONVERSATION, "stream": True},
    "tools": {"input": WEATHER_IN_PARIS, "tools": [WEATHER_TOOL]},
    "calls in the history": {
        "input": [
            {"type": "message", "role": "user", "content": WEATHER_IN_PARIS},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            _call("call_probe_1"),
            _call("call_probe_2"),
            _output("call_probe_1"),
            _output("call_probe_2"),
        ],
        "tools": [WEATHER_TOOL],
    },
    "JSON schema output": {
        "input": PERSON_AS_JSON,
        "text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}},
    },
    "image": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": HELLO},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
                ],
            }
        ]
    },
}
