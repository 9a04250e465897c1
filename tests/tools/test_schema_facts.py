"""Schema facts are kept and prose is dropped, also where a property has the name of a keyword."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.generate.schema import published
from tools.schema_facts import UnknownKeyword, document_facts, encode_facts, main, schema_facts

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Notes", "version": "1", "description": "An API for notes."},
    "components": {
        "schemas": {
            "Note": {
                "title": "A note",
                "description": "Something to remember.",
                "type": "object",
                "required": ["title", "description"],
                "properties": {
                    "title": {
                        "type": "string",
                        "title": "The title",
                        "minLength": 1,
                        "maxLength": 80,
                        "example": "Milk",
                    },
                    "description": {
                        "description": "What to remember.",
                        "type": "string",
                        "pattern": "^[a-z]+$",
                        "default": "none",
                    },
                    "example": {
                        "anyOf": [{"type": "null", "description": "No example."}, {"type": "integer", "minimum": 0}]
                    },
                    "kind": {"allOf": [{"$ref": "#/components/schemas/Kind"}, {"description": "The kind of note."}]},
                    "nothing": {"allOf": [{"description": "Any value."}]},
                    "labels": {
                        "type": "object",
                        "maxProperties": 16,
                        "additionalProperties": {"type": "string", "title": "A label", "maxLength": 64},
                        "properties": {"summary": {"type": "string", "summary": "The first label."}},
                    },
                    "lines": {"type": "array", "minItems": 1, "items": {"type": "string", "examples": ["a", "b"]}},
                },
                "additionalProperties": False,
                "x-openresponses-added-in": "2026-01-01",
                "example": {"title": "Milk", "type": "list"},
            },
            "Kind": {
                "type": "string",
                "enum": ["title", "description"],
                "x-enumDescriptions": {"title": "A title.", "description": "A description."},
            },
        }
    },
}
FACTS: dict[str, Any] = {
    "Note": {
        "type": "object",
        "required": ["title", "description"],
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 80},
            "description": {"type": "string", "pattern": "^[a-z]+$", "default": "none"},
            "example": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0}]},
            "kind": {"allOf": [{"$ref": "#/components/schemas/Kind"}]},
            "nothing": {},
            "labels": {
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": {"type": "string", "maxLength": 64},
                "properties": {"summary": {"type": "string"}},
            },
            "lines": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        },
        "additionalProperties": False,
        "x-openresponses-added-in": "2026-01-01",
    },
    "Kind": {"type": "string", "enum": ["title", "description"]},
}


def test_schema_facts_keeps_facts_and_drops_prose() -> None:
    assert document_facts(DOCUMENT) == FACTS


def test_schema_facts_keeps_the_order_of_the_schema() -> None:
    """So that the facts of two versions can be compared line by line."""
    assert encode_facts(document_facts(DOCUMENT)) == encode_facts(FACTS)


def test_schema_facts_refuses_a_keyword_that_it_does_not_know() -> None:
    """A newer schema may have a fact in it."""
    with pytest.raises(UnknownKeyword, match=r"unknown keyword 'minContains' at Note\.properties\.lines: add it to"):
        schema_facts({"properties": {"lines": {"type": "array", "minContains": 1}}}, "Note")


def test_schema_facts_command_writes_the_file_or_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, out = tmp_path / "schema.json", tmp_path / "facts.json"
    schema.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    assert main([str(schema), str(out)]) == 0
    assert out.read_text(encoding="utf-8") == encode_facts(FACTS)
    assert main([str(schema)]) == 0
    assert capsys.readouterr().out == encode_facts(FACTS)


def test_schema_facts_command_names_the_file_and_the_unknown_keyword(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"components": {"schemas": {"Note": {"acme": 1}}}}', encoding="utf-8")
    assert main([str(schema), str(tmp_path / "facts.json")]) == 1
    assert capsys.readouterr().err.startswith(f"{schema}: unknown keyword 'acme' at Note: ")
    assert not (tmp_path / "facts.json").exists()


def test_stored_facts_of_open_responses_contain_no_prose() -> None:
    stored = published()
    assert len(stored) == 108
    assert document_facts({"components": {"schemas": stored}}) == stored
