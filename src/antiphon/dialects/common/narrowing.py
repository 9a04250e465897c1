"""Narrows JSON schemas of tools and structured output to what a server supports. Every change is a loss.

A `Narrowing` lists the keywords that a server supports; `narrow_schema` returns a schema with no others. A keyword with
an equivalent is rewritten (`const` as `enum`, a reference as its target), any other is left out. A schema that needs no
change comes back equal.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.dialects.common.schema_budget import SchemaBudget, SchemaCounter
from antiphon.protocol.losses import MAX_TEXT_LENGTH, Losses
from antiphon.protocol.tools import JsonSchema


class Narrowing(Struct, frozen=True, kw_only=True):
    """The subset of JSON schema that a server supports."""

    #: Supported keywords; None: any.
    keywords: frozenset[str] | None = None
    #: Supported values of `format`; None: any.
    formats: frozenset[str] | None = None
    #: References: kept, replaced by their targets, or replaced only if one has sibling keywords or a target outside
    #: `$defs`.
    references: Literal["keep", "inline", "inline_unless_plain"] = "keep"
    #: Types: as in JSON schema, or exactly one type in upper case, with `nullable` beside it.
    types: Literal["json", "capitals"] = "json"
    #: Whether values of `enum` must be strings.
    enum_of_strings: bool = False
    #: Whether every object must have `additionalProperties: false`.
    closed_objects: bool = False


def narrow_schema(
    schema: JsonSchema, narrowing: Narrowing, path: str, losses: Losses, budget: SchemaBudget | None = None
) -> JsonSchema:
    """Narrow the schema at `path` of the request. A schema beyond the limits of `budget` is refused; the budget is that
    of the request's tools, or a new one.
    """
    counter = (budget or SchemaBudget()).counter(path)
    encoded = msgspec.json.encode(schema)
    counter.check_size(len(encoded))
    inlines = narrowing.references == "inline" or (
        narrowing.references == "inline_unless_plain" and not _has_plain_references(encoded)
    )
    return _Narrower(schema, narrowing, losses, counter, inlines).schema(schema, path)


class _Narrower:
    """Narrows the schemas of one document."""

    def __init__(
        self, root: JsonSchema, narrowing: Narrowing, losses: Losses, counter: SchemaCounter, inlines: bool
    ) -> None:
        self._root = root
        self._counter = counter
        self._narrowing = narrowing
        self._losses = losses
        self._inlines = inlines
        self._inlined_count = 0
        self._open_references: set[str] = set()  # the references that are being written out
        self._targets: dict[str, JsonSchema | None] = {}  # of references that were resolved before

    def schema(self, schema: Any, path: str) -> JsonSchema:
        """Narrow the schema at `path`."""
        if not isinstance(schema, dict):
            if schema is not True:  # which allows anything, as an empty schema does
                self._report_loss(path, "a schema that allows nothing", "the server does not support it")
            schema = {}
        self._counter.enter(schema)
        narrowed = (
            self._inline_reference(schema, path)
            if "$ref" in schema and self._inlines
            else self._narrow_keywords(schema, path)
        )
        self._counter.leave()
        return narrowed

    def _narrow_keywords(self, schema: JsonSchema, path: str) -> JsonSchema:
        counter, supported = self._counter, self._narrowing.keywords
        nodes, size = counter.nodes, counter.size
        if not REWRITTEN_KEYWORDS.isdisjoint(schema):
            schema = self._rewrite_keywords(schema, path)
        narrowed: JsonSchema = {}
        value_size = 0  # bytes of values that are no schemas
        for keyword, value in schema.items():
            content = CONTENT_OF_KEYWORD.get(keyword)
            if content == "definitions" and self._inlines:
                continue  # every reference is replaced by its target
            if supported is not None and keyword not in supported:
                if keyword not in ANNOTATION_KEYWORDS:
                    self._report_loss(
                        _append_step(path, f".{keyword}"),
                        f"the schema keyword {keyword[:80]!r}",
                        "the server does not support it",
                    )
            elif (content == "schemas by name" or content == "definitions") and isinstance(value, dict):
                counter.add_names(value)
                target_path = _append_step(path, f".{keyword}.")
                narrowed[keyword] = {
                    name: self.schema(member, _append_step(target_path, name)) for name, member in value.items()
                }
            elif content == "schemas" and isinstance(value, list):
                target_path = _append_step(path, f".{keyword}")
                narrowed[keyword] = [
                    self.schema(member, _append_step(target_path, f"[{index}]")) for index, member in enumerate(value)
                ]
            elif content == "schema" and not isinstance(value, bool):
                narrowed[keyword] = self.schema(value, _append_step(path, f".{keyword}"))
            else:
                value_size += len(value) if type(value) is str else len(msgspec.json.encode(value))
                if content != "choice" or self._is_supported_value(keyword, value, path):
                    narrowed[keyword] = value
        counter.add_size(value_size)
        if self._narrowing.types == "capitals":
            narrowed = self._with_upper_case_type(narrowed, path, nodes, size)
        return self._close_object(narrowed, path) if self._narrowing.closed_objects else narrowed

    def _inline_reference(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Replace a reference by its target. Keywords beside the reference are kept."""
        reference = schema["$ref"] if isinstance(schema["$ref"], str) else "a value that is not a string"
        target = self._target(reference)
        self._inlined_count += 1
        if reference in self._open_references or self._inlined_count > MAX_INLINED:
            self._report_loss(
                path, f"the schema at {reference[:80]!r}", "the server has no references, and the schema is recursive"
            )
            return self.schema({"type": "object"}, path)
        if target is None:
            self._report_loss(path, f"the reference {reference[:80]!r}", "its target does not exist")
            target = {}
        sibling_keywords = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        self._open_references.add(reference)
        narrowed = self.schema({**target, **sibling_keywords}, path)
        self._open_references.remove(reference)
        return narrowed

    def _target(self, reference: str) -> JsonSchema | None:
        """The schema behind a reference into the same document; None if there is none."""
        if reference not in self._targets:
            self._targets[reference] = _resolve_reference(self._root, reference)
        return self._targets[reference]

    def _rewrite_keywords(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Replace keywords that the server does not support by equivalent ones."""
        if "const" in schema and not self._supports("const"):
            schema = _const_as_enum(schema)
        if "allOf" in schema and not self._supports("allOf"):
            schema = _merge_all_of(schema, self._counter)
        if "oneOf" in schema and not self._supports("oneOf") and "anyOf" not in schema:
            self._report_loss(
                _append_step(path, ".oneOf"), "the limit to exactly one matching schema", "it is sent as anyOf"
            )
            schema = {("anyOf" if keyword == "oneOf" else keyword): value for keyword, value in schema.items()}
        return schema

    def _report_loss(self, path: str, what: str, why: str) -> None:
        self._counter.add_nodes(1)
        self._losses.add(path, what, why)

    def _supports(self, keyword: str) -> bool:
        return self._narrowing.keywords is None or keyword in self._narrowing.keywords

    def _is_supported_value(self, keyword: str, value: Any, path: str) -> bool:
        if (
            keyword == "format"
            and self._narrowing.formats is not None
            and not (isinstance(value, str) and value in self._narrowing.formats)
        ):
            self._report_loss(
                _append_step(path, ".format"), f"the format {str(value)[:50]!r}", "the server does not support it"
            )
            return False
        if keyword == "enum" and self._narrowing.enum_of_strings and not _is_list_of_strings(value):
            self._report_loss(
                _append_step(path, ".enum"), "the list of allowed values", "the server accepts only strings in it"
            )
            return False
        return True

    def _with_upper_case_type(self, schema: JsonSchema, path: str, nodes: int, size: int) -> JsonSchema:
        """Write the type in upper case. `nodes` and `size` are the counts before this schema."""
        types = schema.pop("type") if "type" in schema else _implied_type(schema)
        if isinstance(types, str) and types:
            return self._with_consistent_keywords({"type": types.upper(), **schema}, path)
        type_names = [member for member in (types if isinstance(types, list) else [types]) if member]
        if "null" in type_names and len(type_names) > 1:
            schema["nullable"] = True
            type_names.remove("null")
        upper_case_types = [str(member).upper() for member in type_names]
        if len(upper_case_types) > 1:  # each type gets a schema of its own, with a copy of its content
            self._counter.add_copies(nodes, size, len(upper_case_types) - 1)
            sibling_keywords = {keyword: value for keyword, value in schema.items() if keyword in KEYWORDS_OF_ANY_TYPE}
            return {
                **sibling_keywords,
                "anyOf": [
                    self._with_consistent_keywords(_schema_of_type(upper_case_type, schema), path)
                    for upper_case_type in upper_case_types
                ],
            }
        if not upper_case_types and "anyOf" not in schema:
            self._report_loss(path, "a schema that allows any value", "the server requires a type; string is sent")
            upper_case_types = ["STRING"]
        return self._with_consistent_keywords(
            {"type": upper_case_types[0], **schema} if upper_case_types else schema, path
        )

    def _with_consistent_keywords(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Remove keywords of other types and required properties that are not defined; give every array `items`."""
        upper_case_type = schema.get("type")
        others = KEYWORDS_OF_OTHER_TYPES.get(upper_case_type or "", TYPE_OF_KEYWORD.keys())
        for keyword in [] if others.isdisjoint(schema) else [keyword for keyword in schema if keyword in others]:
            if keyword == "enum" or upper_case_type is None:  # others mean nothing to any reader
                self._report_loss(
                    _append_step(path, f".{keyword}"),
                    f"the schema keyword {keyword!r}",
                    "the server does not accept it with this type",
                )
            schema = {name: value for name, value in schema.items() if name != keyword}
        if upper_case_type == "ARRAY" and "items" not in schema:
            self._report_loss(path, "an array that may have any items", "the server requires a type; string is sent")
            schema = {**schema, "items": {"type": "STRING"}}
        required = schema.get("required")
        if required is None:
            return schema
        required_names, properties_of_object = (
            required if _is_list_of_strings(required) else [],
            schema.get("properties"),
        )
        existing = (
            [name for name in required_names if name in properties_of_object]
            if isinstance(properties_of_object, dict)
            else []
        )
        if existing != required:
            target_path = _append_step(path, ".required")
            self._report_loss(target_path, "required properties that are not defined", "the server refuses them")
            schema = {**schema, "required": existing}
        return schema

    def _close_object(self, schema: JsonSchema, path: str) -> JsonSchema:
        if (schema["type"] if "type" in schema else _implied_type(schema)) != "object":
            return schema
        if schema.get("additionalProperties", False) is not False:
            self._report_loss(
                _append_step(path, ".additionalProperties"),
                "additional properties of an object",
                "the server does not allow them",
            )
        return {**schema, "additionalProperties": False}


def _append_step(path: str, step: str) -> str:
    """Append a step to a path, unless the path is already too long to be shown."""
    return path + step if len(path) < MAX_TEXT_LENGTH else path


def _resolve_reference(root: JsonSchema, reference: str) -> JsonSchema | None:
    """The schema that a reference such as `#/$defs/a` names; None if there is none."""
    if not reference.startswith("#"):
        return None
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(target, dict):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target if isinstance(target, dict) else None


def _has_plain_references(encoded: bytes) -> bool:
    """Whether every reference of a schema has no sibling keywords and a target in `$defs`.

    It searches the JSON, because walking a large list of values takes longer.
    """
    references = encoded.count(b'{"$ref":') + encoded.count(b',"$ref":')
    return not references or len(PLAIN_REFERENCE.findall(encoded)) == references


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {str}


def _schema_of_type(upper_case_type: str, schema: JsonSchema) -> JsonSchema:
    """The keywords of a schema with several types that concern one of them."""
    own_keywords = {keyword: value for keyword, value in schema.items() if keyword not in KEYWORDS_OF_ANY_TYPE}
    return {
        "type": upper_case_type,
        **{
            keyword: value
            for keyword, value in own_keywords.items()
            if TYPE_OF_KEYWORD.get(keyword, upper_case_type) == upper_case_type
        },
    }


def _implied_type(schema: JsonSchema) -> str | None:
    """The type that the keywords of a schema without a type imply."""
    return next((kind for keyword, kind in TYPE_IMPLIED_BY.items() if keyword in schema), None)


def _const_as_enum(schema: JsonSchema) -> JsonSchema:
    return {
        ("enum" if keyword == "const" else keyword): [value] if keyword == "const" else value
        for keyword, value in schema.items()
    }


def _merge_all_of(schema: JsonSchema, counter: SchemaCounter) -> JsonSchema:
    """Merge the schemas of `allOf` into one. The properties of objects are joined."""
    parts = schema["allOf"]
    if not isinstance(parts, list):
        return schema
    counter.add_members(parts)
    if not all(isinstance(part, dict) and "$ref" not in part for part in parts):
        return schema
    own_keywords: JsonSchema = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    whole: JsonSchema = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}  # in their order, each once
    for part in (own_keywords, *parts):
        counter.add_nodes(1)  # equal parts are counted too, because merging them takes time
        counter.add_members(part)
        for keyword, value in part.items():
            whole.setdefault(keyword, value)
            if keyword == "properties" and isinstance(value, dict):
                counter.add_members(value)
                properties.update(value)
            elif keyword == "required" and isinstance(value, list):
                counter.add_members(value)
                required.update((name, None) for name in value if isinstance(name, str))
    merged = {"properties": properties, "required": list(required)}
    return {**whole, **{keyword: value for keyword, value in merged.items() if value}}


#: The number of replaced references after which a schema counts as recursive.
MAX_INLINED: Final = 500
PLAIN_REFERENCE: Final = re.compile(rb'\{"\$ref":"#/\$defs/[^"\\]*+(?:\\.[^"\\]*+)*+"\}')
KEYWORDS_OF_ANY_TYPE: Final = frozenset({"description", "title", "nullable"})
REWRITTEN_KEYWORDS: Final = frozenset({"const", "allOf", "oneOf"})
#: The content of keywords that is more than a value. For a choice, servers may support only some values.
CONTENT_OF_KEYWORD: Final = {
    **dict.fromkeys(("$defs", "definitions"), "definitions"),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), "schemas by name"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "schemas"),
    **dict.fromkeys(
        ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"), "schema"
    ),
    **dict.fromkeys(("format", "enum"), "choice"),
}
#: Keywords that constrain no value. Leaving them out is no loss.
ANNOTATION_KEYWORDS: Final = frozenset({"$schema", "$id", "$comment", "$anchor"})
TYPE_IMPLIED_BY: Final = {"properties": "object", "items": "array", "enum": "string"}
#: Keywords that apply to one type only.
TYPE_OF_KEYWORD: Final = {
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
#: For each type, the keywords that apply to another type only.
KEYWORDS_OF_OTHER_TYPES: Final = {
    upper_case_type: frozenset(keyword for keyword, other in TYPE_OF_KEYWORD.items() if other != upper_case_type)
    for upper_case_type in set(TYPE_OF_KEYWORD.values())
}
