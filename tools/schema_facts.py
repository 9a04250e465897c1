"""Extracts the facts of the schemas of an OpenAPI document: names, types, required fields, bounds, references.

Usage: `python tools/schema_facts.py SCHEMA.json [OUT]`. Without OUT the facts go to standard output. Prose (titles,
descriptions, examples) is dropped. A keyword that is listed below neither as a fact nor as prose is an error: add it to
one of the lists, so that no fact of a newer schema is lost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]


class UnknownKeyword(Exception):
    """A keyword that is neither a fact nor prose, and its path."""

    def __init__(self, keyword: str, path: str) -> None:
        super().__init__(
            f"unknown keyword {keyword!r} at {path}: add it to the facts or to the prose in tools/schema_facts.py"
        )


def document_facts(document: dict[str, Any]) -> dict[str, Schema]:
    """Returns the facts of all schemas under `components.schemas`, by name."""
    return {name: schema_facts(schema, name) for name, schema in document["components"]["schemas"].items()}


def schema_facts(schema: Any, path: str) -> Any:
    """Returns the facts of one schema. `true` and `false` are schemas too."""
    if isinstance(schema, bool):
        return schema
    facts: Schema = {}
    for keyword, value in schema.items():
        keyword_path = f"{path}.{keyword}"
        if keyword in VALUES:
            facts[keyword] = value
        elif keyword in SCHEMA:
            facts[keyword] = schema_facts(value, keyword_path)
        elif keyword in SCHEMAS:
            members = [schema_facts(member, f"{keyword_path}[{index}]") for index, member in enumerate(value)]
            if keyword == "allOf":  # a member with only prose has no constraint
                members = [member for member in members if member != {}]
            if members:
                facts[keyword] = members
        elif keyword in SCHEMAS_BY_NAME:
            # The keys are names, never keywords: a property may be called `description`.
            facts[keyword] = {name: schema_facts(member, f"{keyword_path}.{name}") for name, member in value.items()}
        elif keyword not in PROSE:
            raise UnknownKeyword(keyword, path)
    return facts


def encode_facts(facts: dict[str, Schema]) -> str:
    """Returns the facts as indented JSON, so that the difference to a newer schema is readable."""
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Extract the facts of the schemas of an OpenAPI document; prose is dropped."
    )
    parser.add_argument("schema", type=Path, metavar="SCHEMA.json", help="the OpenAPI document")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help="the file to write; default: standard output")
    options = parser.parse_args(arguments)
    try:
        text = encode_facts(document_facts(json.loads(options.schema.read_text(encoding="utf-8"))))
    except UnknownKeyword as error:
        print(f"{options.schema}: {error}", file=sys.stderr)
        return 1
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0


# Facts whose value is kept as it is.
VALUES: Final = {
    "$ref", "type", "enum", "const", "default", "format", "pattern", "required", "nullable", "discriminator",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "deprecated", "readOnly", "writeOnly",
    "x-openresponses-added-in", "x-openresponses-disallowed",
}  # fmt: skip
# Facts whose value is one schema, a list of schemas, or schemas by name.
SCHEMA: Final = {"items", "additionalProperties", "not", "propertyNames", "contains"}
SCHEMAS: Final = {"anyOf", "oneOf", "allOf", "prefixItems"}
SCHEMAS_BY_NAME: Final = {"properties", "patternProperties", "$defs"}
# Texts for readers, and hints for documentation sites.
PROSE: Final = {
    "description", "title", "summary", "example", "examples", "externalDocs", "$comment",
    "x-unionDisplay", "x-unionTitle", "x-enumDescriptions",
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
