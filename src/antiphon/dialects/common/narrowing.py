"""Reduces a JSON schema to the keywords that a server supports, and reports every change as a loss.

It is used for the parameters of tools and for structured output. An unsupported keyword is replaced by an equivalent
one where possible (`const` by `enum`, a reference by its target), else it is removed. A schema that needs no change is
returned equal.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.dialects.common.schema_budget import SchemaBudget, SchemaCounter
from antiphon.protocol.losses import MAX_TEXT, Losses
from antiphon.protocol.tools import JsonSchema


class Narrowing(Struct, frozen=True, kw_only=True):
    """The JSON schema features that a server supports."""

    #: Supported keywords; None: all.
    keywords: frozenset[str] | None = None
    #: Supported values of `format`; None: all.
    formats: frozenset[str] | None = None
    #: References: kept, replaced by their targets, or replaced only where a reference has sibling keywords or a target
    #: outside `$defs`.
    references: Literal["keep", "inline", "inline_unless_plain"] = "keep"
    #: Types: as in JSON schema, or exactly one type in capitals, with `nullable`.
    types: Literal["json", "capitals"] = "json"
    #: Whether the values of `enum` must be strings.
    enum_of_strings: bool = False
    #: Whether every object must have `additionalProperties: false`.
    closed_objects: bool = False


def narrow_schema(
    schema: JsonSchema, narrowing: Narrowing, path: str, losses: Losses, budget: SchemaBudget | None = None
) -> JsonSchema:
    """Reduces `schema`, which is at `path` in the request, to what the server supports.

    A schema that exceeds `budget` (the budget of the request's tools, or its own by default) is refused.
    """
    counter = (budget or SchemaBudget()).counter(path)
    encoded = msgspec.json.encode(schema)
    counter.check_size(len(encoded))
    inlines = narrowing.references == "inline" or (
        narrowing.references == "inline_unless_plain" and not _has_plain_references(encoded)
    )
    return _Narrower(schema, narrowing, losses, counter, inlines).schema(schema, path)


class _Narrower:
    """Narrows one schema document."""

    def __init__(
        self, root: JsonSchema, narrowing: Narrowing, losses: Losses, counter: SchemaCounter, inlines: bool
    ) -> None:
        self._root = root
        self._counter = counter
        self._narrowing = narrowing
        self._losses = losses
        self._inlines = inlines
        self._inlined = 0
        self._inside: set[str] = set()  # the references that are being replaced
        self._targets: dict[str, JsonSchema | None] = {}  # the targets of resolved references

    def schema(self, schema: Any, path: str) -> JsonSchema:
        """Narrows the schema at `path`."""
        if not isinstance(schema, dict):
            if schema is not True:  # `true` allows anything, like an empty schema
                self._lose(path, "that no value is allowed", "the server has no such schema")
            schema = {}
        self._counter.enter(schema)
        narrowed = self._referred(schema, path) if "$ref" in schema and self._inlines else self._narrowed(schema, path)
        self._counter.leave()
        return narrowed

    def _narrowed(self, schema: JsonSchema, path: str) -> JsonSchema:
        counter, supported = self._counter, self._narrowing.keywords
        nodes, size = counter.nodes, counter.size
        schema = self._replace_keywords(schema, path)
        narrowed: JsonSchema = {}
        written = 0  # bytes of values that are not schemas
        for keyword, value in schema.items():
            if keyword in DEFINITIONS and self._inlines:
                continue  # their references were replaced by the definitions
            if supported is not None and keyword not in supported:
                if keyword not in NO_MEANING:
                    self._lose(
                        _step(path, f".{keyword}"),
                        f"the keyword {keyword[:80]!r} of a schema",
                        "the server does not know it",
                    )
            elif keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
                counter.add_names(value)
                place = _step(path, f".{keyword}.")
                narrowed[keyword] = {name: self.schema(one, _step(place, name)) for name, one in value.items()}
            elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
                place = _step(path, f".{keyword}")
                narrowed[keyword] = [self.schema(one, _step(place, f"[{at}]")) for at, one in enumerate(value)]
            elif keyword in SCHEMAS and not isinstance(value, bool):
                narrowed[keyword] = self.schema(value, _step(path, f".{keyword}"))
            elif keyword not in CHECKED or self._may_stand(keyword, value, path):
                written += len(value) if type(value) is str else len(msgspec.json.encode(value))
                narrowed[keyword] = value
        counter.add_size(written)
        return self._closed(self._typed(narrowed, path, nodes, size), path)

    def _referred(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Replaces a reference by its target, merged with the sibling keywords."""
        reference = str(schema["$ref"])
        target = self._target(schema["$ref"])
        self._inlined += 1
        if reference in self._inside or self._inlined > MOST_INLINED:
            self._lose(
                path,
                f"the target of {reference[:80]!r}",
                "the server does not support references, and the target is recursive",
            )
            return self.schema({"type": "object"}, path)
        if target is None:
            self._lose(path, f"the reference {reference[:80]!r}", "its target does not exist")
            target = {}
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        self._inside.add(reference)
        narrowed = self.schema({**target, **beside}, path)
        self._inside.remove(reference)
        return narrowed

    def _target(self, reference: Any) -> JsonSchema | None:
        """The target of a reference into the same document, None if there is none."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        if reference not in self._targets:
            self._targets[reference] = _resolve_reference(self._root, reference)
        return self._targets[reference]

    def _replace_keywords(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Replaces unsupported keywords by equivalent ones."""
        if "const" in schema and not self._supports("const"):
            schema = _const_as_enum(schema)
        if "allOf" in schema and not self._supports("allOf"):
            schema = _all_in_one(schema, self._counter)
        if "oneOf" in schema and not self._supports("oneOf") and "anyOf" not in schema:
            self._lose(_step(path, ".oneOf"), "that exactly one of several schemas holds", "at least one must")
            schema = {("anyOf" if keyword == "oneOf" else keyword): value for keyword, value in schema.items()}
        return schema

    def _lose(self, path: str, what: str, why: str) -> None:
        self._counter.add_nodes(1)
        self._losses.add(path, what, why)

    def _supports(self, keyword: str) -> bool:
        return self._narrowing.keywords is None or keyword in self._narrowing.keywords

    def _may_stand(self, keyword: str, value: Any, path: str) -> bool:
        if (
            keyword == "format"
            and self._narrowing.formats is not None
            and not (isinstance(value, str) and value in self._narrowing.formats)
        ):
            self._lose(_step(path, ".format"), f"the format {str(value)[:50]!r}", "the server does not know it")
            return False
        if keyword == "enum" and self._narrowing.enum_of_strings and not _is_list_of_strings(value):
            self._lose(_step(path, ".enum"), "the values that are allowed", "the server takes lists of strings only")
            return False
        return True

    def _typed(self, schema: JsonSchema, path: str, nodes: int, size: int) -> JsonSchema:
        """Writes the type as the server requires it. `nodes` and `size` are the counts before this schema."""
        if self._narrowing.types == "json":
            return schema
        types = schema.pop("type") if "type" in schema else _implied_type(schema)
        types_listed = [one for one in (types if isinstance(types, list) else [types]) if one]
        if "null" in types_listed and len(types_listed) > 1:
            schema["nullable"] = True
            types_listed.remove("null")
        words = [str(one).upper() for one in types_listed]
        if len(words) > 1:  # each type gets its own copy of the schema
            self._counter.add_copies(nodes, size, len(words) - 1)
            beside = {keyword: value for keyword, value in schema.items() if keyword in OF_ANY_TYPE}
            return {**beside, "anyOf": [self._whole(_of_type(word, schema), path) for word in words]}
        if not words and "anyOf" not in schema:
            self._lose(path, "that any value is allowed", "the server requires a type; string was used")
            words = ["STRING"]
        return self._whole({"type": words[0], **schema} if words else schema, path)

    def _whole(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Removes keywords of other types, adds missing `items`, and requires only members that exist."""
        word = schema.get("type")
        for keyword in [keyword for keyword in schema if KEYWORDS_OF.get(keyword, word) != word]:
            if keyword == "enum" or word is None:  # other keywords have no effect
                self._lose(
                    _step(path, f".{keyword}"),
                    f"the keyword {keyword!r} of a schema",
                    "the server wants another type with it",
                )
            schema = {name: value for name, value in schema.items() if name != keyword}
        if schema.get("type") == "ARRAY" and "items" not in schema:
            self._lose(path, "that a list may have any items", "the server requires a type; string was used")
            schema = {**schema, "items": {"type": "STRING"}}
        required = schema.get("required")
        if required is None:
            return schema
        names, members = required if _is_list_of_strings(required) else [], schema.get("properties")
        existing = [name for name in names if name in members] if isinstance(members, dict) else []
        if existing != required:
            place = _step(path, ".required")
            self._lose(place, "required members that are not in properties", "the server refuses them")
            schema = {**schema, "required": existing}
        return schema

    def _closed(self, schema: JsonSchema, path: str) -> JsonSchema:
        if not self._narrowing.closed_objects:
            return schema
        if (schema["type"] if "type" in schema else _implied_type(schema)) != "object":
            return schema
        if schema.get("additionalProperties", False) is not False:
            self._lose(
                _step(path, ".additionalProperties"), "that an object may have other members", "the server forbids it"
            )
        return {**schema, "additionalProperties": False}


def _step(path: str, step: str) -> str:
    """Extends a path, unless it is too long to be read: names in nested schemas may have any length."""
    return path + step if len(path) < MAX_TEXT else path


def _resolve_reference(root: JsonSchema, reference: str) -> JsonSchema | None:
    """Resolves a reference such as `#/$defs/a`."""
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, dict):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    return place if isinstance(place, dict) else None


def _has_plain_references(encoded: bytes) -> bool:
    """Whether every reference of a schema has no sibling keywords and a target in `$defs`. Searches the encoded
    JSON, which has no white space, because walking a large schema is slower."""
    references = encoded.count(b'{"$ref":') + encoded.count(b',"$ref":')
    return not references or len(PLAIN_REFERENCE.findall(encoded)) == references


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {str}


def _of_type(word: str, schema: JsonSchema) -> JsonSchema:
    """The part of a schema with several types that applies to one of them."""
    own = {keyword: value for keyword, value in schema.items() if keyword not in OF_ANY_TYPE}
    return {
        "type": word,
        **{keyword: value for keyword, value in own.items() if KEYWORDS_OF.get(keyword, word) == word},
    }


def _implied_type(schema: JsonSchema) -> str | None:
    """The type of a schema without `type`, inferred from its keywords."""
    return next((kind for keyword, kind in IMPLIES.items() if keyword in schema), None)


def _const_as_enum(schema: JsonSchema) -> JsonSchema:
    return {
        ("enum" if keyword == "const" else keyword): [value] if keyword == "const" else value
        for keyword, value in schema.items()
    }


def _all_in_one(schema: JsonSchema, counter: SchemaCounter) -> JsonSchema:
    """Merges the schemas of `allOf` into one, including the members of objects."""
    parts = schema["allOf"]
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "$ref" not in part for part in parts):
        return schema
    own: JsonSchema = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    whole: JsonSchema = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}  # in order, without duplicates
    for part in (own, *parts):
        counter.add_nodes(1)  # equal parts take time too, though the result has only one
        counter.add_members(part)
        for keyword, value in part.items():
            whole.setdefault(keyword, value)
            if keyword == "properties" and isinstance(value, dict):
                counter.add_members(value)
                properties.update(value)
            elif keyword == "required" and isinstance(value, list):
                counter.add_members(value)
                required.update((name, None) for name in value if isinstance(name, str))
    together = {"properties": properties, "required": list(required)}
    return {**whole, **{keyword: value for keyword, value in together.items() if value}}


#: The number of replaced references above which a schema counts as recursive.
MOST_INLINED: Final = 500
PLAIN_REFERENCE: Final = re.compile(rb'\{"\$ref":"#/\$defs/[^"\\]*+(?:\\.[^"\\]*+)*+"\}')
CHECKED: Final = frozenset({"format", "enum"})  # keywords with values that a server may not support
OF_ANY_TYPE: Final = frozenset({"description", "title", "nullable"})
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
SCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas"}) | DEFINITIONS
LISTS_OF_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMAS: Final = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
#: Keywords that have no meaning for a model.
NO_MEANING: Final = frozenset({"$schema", "$id", "$comment", "$anchor"})
IMPLIES: Final = {"properties": "object", "items": "array", "enum": "string"}
#: Keywords that apply to one type only.
KEYWORDS_OF: Final = {
    "properties": "OBJECT",
    "required": "OBJECT",
    "items": "ARRAY",
    "minItems": "ARRAY",
    "maxItems": "ARRAY",
    "enum": "STRING",
    "pattern": "STRING",
    "minLength": "STRING",
    "maxLength": "STRING",
}
