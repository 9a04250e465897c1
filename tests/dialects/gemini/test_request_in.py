"""The two spellings of the API's fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.gemini.request_in import normalize_spelling, to_camel_case


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("top_p", "topP"),
        ("system_instruction", "systemInstruction"),
        ("topP", "topP"),
        ("_private", "_private"),
        ("x", "x"),
    ],
)
def test_to_camel_case_converts_snake_case(name: str, spelled: str) -> None:
    assert to_camel_case(name) == spelled


def test_normalize_spelling_renames_api_fields_but_not_user_json() -> None:
    own: dict[str, Any] = {"my_key": {"top_p": 1}}
    body = {
        "system_instruction": {"parts": [{"text": "say top_p"}]},
        "contents": [
            {
                "parts": [
                    {"function_call": {"name": "a", "args": own}},
                    {"function_response": {"name": "a", "response": own}},
                ]
            },
            {"parts": [{"inline_data": {"mime_type": "image/png", "data": ""}, "part_metadata": own}]},
        ],
        "tools": [{"function_declarations": [{"parameters": own, "parameters_json_schema": own}]}],
        "generation_config": {"response_schema": own, "response_json_schema": own},
        "labels": own,
    }
    assert json.loads(normalize_spelling(json.dumps(body).encode())) == {
        "systemInstruction": {"parts": [{"text": "say top_p"}]},
        "contents": [
            {
                "parts": [
                    {"functionCall": {"name": "a", "args": own}},
                    {"functionResponse": {"name": "a", "response": own}},
                ]
            },
            {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}, "partMetadata": own}]},
        ],
        "tools": [{"functionDeclarations": [{"parameters": own, "parametersJsonSchema": own}]}],
        "generationConfig": {"responseSchema": own, "responseJsonSchema": own},
        "labels": own,
    }


def test_normalize_spelling_wraps_single_objects_in_lists() -> None:
    """The API's own examples for curl use this spelling."""
    own: dict[str, Any] = {"parts": {"contents": {}}}
    body = {
        "contents": {"parts": {"functionResponse": {"name": "a", "response": own, "parts": {"text": "b"}}}},
        "tools": {"functionDeclarations": {"name": "a", "parameters": own}},
    }
    assert json.loads(normalize_spelling(json.dumps(body).encode())) == {
        "contents": [{"parts": [{"functionResponse": {"name": "a", "response": own, "parts": [{"text": "b"}]}}]}],
        "tools": [{"functionDeclarations": [{"name": "a", "parameters": own}]}],
    }


@pytest.mark.parametrize(
    "body", [b'{"topP": 1 }', b'{"top_p": ', b'{"top_p": {"\xed\xa0\x80": 1}}', b'{"top_p":' * 2000]
)
def test_normalize_spelling_keeps_correct_and_invalid_bodies(body: bytes) -> None:
    assert normalize_spelling(body) == body
