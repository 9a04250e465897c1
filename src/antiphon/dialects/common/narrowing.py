"""JSON schema narrowed to what a server takes, every change a loss: for the parameters of tools and for structured output alike.

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
    """What a server knows of JSON schema."""

    #: Keywords that may stand in a schema; None: any.
    keywords: frozenset[str] | None = None
    #: Forms of strings and numbers that may be asked for; None: any.
    formats: frozenset[str] | None = None
    #: References: kept, replaced by what they refer to, or so only where one has company or leads elsewhere than into `$defs`.
    references: Literal["keep", "inline", "inline_unless_plain"] = "keep"
    #: Types: as JSON schema has them, or always one, in capitals, with `nullable` beside it.
    types: Literal["json", "capitals"] = "json"
    #: Whether values of `enum` must be strings.
    enum_of_strings: bool = False
    #: Whether every object must say that it has no other members.
    closed_objects: bool = False


def narrow_schema(
    schema: JsonSchema, narrowing: Narrowing, path: str, losses: Losses, budget: SchemaBudget | None = None
) -> JsonSchema:
    """`schema` in what the server knows; `path` is where it stands in the request. Beyond the bounds of `budget`, which is that of
    the request's tools or else its own, it is refused."""
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
        self._inlined = 0
        self._inside: set[str] = set()  # the references that are being written out
        self._targets: dict[str, JsonSchema | None] = {}  # of references that were resolved before

    def schema(self, schema: Any, path: str) -> JsonSchema:
        """One schema, which stands at `path`."""
        if not isinstance(schema, dict):
            if schema is not True:  # which allows anything, as an empty schema does
                self._lose(path, "a schema that allows nothing", "the server does not support it")
            schema = {}
        self._counter.enter(schema)
        narrowed = self._referred(schema, path) if "$ref" in schema and self._inlines else self._narrowed(schema, path)
        self._counter.leave()
        return narrowed

    def _narrowed(self, schema: JsonSchema, path: str) -> JsonSchema:
        counter, supported = self._counter, self._narrowing.keywords
        nodes, size = counter.nodes, counter.size
        if not REWRITTEN_KEYWORDS.isdisjoint(schema):
            schema = self._rewrite_keywords(schema, path)
        narrowed: JsonSchema = {}
        written = 0  # bytes of values that are no schemas
        for keyword, value in schema.items():
            holds = HOLDS.get(keyword)
            if holds == "definitions" and self._inlines:
                continue  # what refers to them holds them now
            if supported is not None and keyword not in supported:
                if keyword not in SAYS_NOTHING:
                    self._lose(
                        _step(path, f".{keyword}"),
                        f"the schema keyword {keyword[:80]!r}",
                        "the server does not support it",
                    )
            elif (holds == "schemas by name" or holds == "definitions") and isinstance(value, dict):
                counter.add_names(value)
                place = _step(path, f".{keyword}.")
                narrowed[keyword] = {name: self.schema(one, _step(place, name)) for name, one in value.items()}
            elif holds == "schemas" and isinstance(value, list):
                place = _step(path, f".{keyword}")
                narrowed[keyword] = [self.schema(one, _step(place, f"[{index}]")) for index, one in enumerate(value)]
            elif holds == "schema" and not isinstance(value, bool):
                narrowed[keyword] = self.schema(value, _step(path, f".{keyword}"))
            else:
                written += len(value) if type(value) is str else len(msgspec.json.encode(value))
                if holds != "choice" or self._may_stand(keyword, value, path):
                    narrowed[keyword] = value
        counter.add_size(written)
        if self._narrowing.types == "capitals":
            narrowed = self._typed(narrowed, path, nodes, size)
        return self._closed(narrowed, path) if self._narrowing.closed_objects else narrowed

    def _referred(self, schema: JsonSchema, path: str) -> JsonSchema:
        """What a reference refers to, in its place; what stands beside the reference counts too."""
        reference = schema["$ref"] if isinstance(schema["$ref"], str) else "a value that is not a string"
        target = self._target(reference)
        self._inlined += 1
        if reference in self._inside or self._inlined > MOST_INLINED:
            self._lose(
                path, f"the schema at {reference[:80]!r}", "the server has no references, and the schema is recursive"
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

    def _target(self, reference: str) -> JsonSchema | None:
        """The schema behind a reference into the same document; None if there is none."""
        if reference not in self._targets:
            self._targets[reference] = _resolve_reference(self._root, reference)
        return self._targets[reference]

    def _rewrite_keywords(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Keywords that the server does not know, by others that mean the same."""
        if "const" in schema and not self._knows("const"):
            schema = _const_as_enum(schema)
        if "allOf" in schema and not self._knows("allOf"):
            schema = _all_in_one(schema, self._counter)
        if "oneOf" in schema and not self._knows("oneOf") and "anyOf" not in schema:
            self._lose(_step(path, ".oneOf"), "the limit to exactly one matching schema", "it is sent as anyOf")
            schema = {("anyOf" if keyword == "oneOf" else keyword): value for keyword, value in schema.items()}
        return schema

    def _lose(self, path: str, what: str, why: str) -> None:
        self._counter.add_nodes(1)
        self._losses.add(path, what, why)

    def _knows(self, keyword: str) -> bool:
        return self._narrowing.keywords is None or keyword in self._narrowing.keywords

    def _may_stand(self, keyword: str, value: Any, path: str) -> bool:
        if (
            keyword == "format"
            and self._narrowing.formats is not None
            and not (isinstance(value, str) and value in self._narrowing.formats)
        ):
            self._lose(_step(path, ".format"), f"the format {str(value)[:50]!r}", "the server does not support it")
            return False
        if keyword == "enum" and self._narrowing.enum_of_strings and not _is_list_of_strings(value):
            self._lose(_step(path, ".enum"), "the list of allowed values", "the server accepts only strings in it")
            return False
        return True

    def _typed(self, schema: JsonSchema, path: str, nodes: int, size: int) -> JsonSchema:
        """The type as the server spells it, and what such a server wants said with it. `nodes` and `size` were spent before."""
        types = schema.pop("type") if "type" in schema else _implied(schema)
        if isinstance(types, str) and types:
            return self._whole({"type": types.upper(), **schema}, path)
        given = [one for one in (types if isinstance(types, list) else [types]) if one]
        if "null" in given and len(given) > 1:
            schema["nullable"] = True
            given.remove("null")
        words = [str(one).upper() for one in given]
        if len(words) > 1:  # each type gets a schema of its own, with all that is inside
            self._counter.add_copies(nodes, size, len(words) - 1)
            beside = {keyword: value for keyword, value in schema.items() if keyword in OF_ANY_TYPE}
            return {**beside, "anyOf": [self._whole(_of_type(word, schema), path) for word in words]}
        if not words and "anyOf" not in schema:
            self._lose(path, "a schema that allows any value", "the server requires a type; string is sent")
            words = ["STRING"]
        return self._whole({"type": words[0], **schema} if words else schema, path)

    def _whole(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Lists must say what they hold, only members that are there can be required, and nothing is said that has no meaning."""
        word = schema.get("type")
        others = OF_OTHER_TYPES.get(word or "", KEYWORDS_OF.keys())
        for keyword in [] if others.isdisjoint(schema) else [keyword for keyword in schema if keyword in others]:
            if keyword == "enum" or word is None:  # others mean nothing to any reader
                self._lose(
                    _step(path, f".{keyword}"),
                    f"the schema keyword {keyword!r}",
                    "the server does not accept it with this type",
                )
            schema = {name: value for name, value in schema.items() if name != keyword}
        if word == "ARRAY" and "items" not in schema:
            self._lose(path, "an array that may have any items", "the server requires a type; string is sent")
            schema = {**schema, "items": {"type": "STRING"}}
        required = schema.get("required")
        if required is None:
            return schema
        names, members = required if _is_list_of_strings(required) else [], schema.get("properties")
        existing = [name for name in names if name in members] if isinstance(members, dict) else []
        if existing != required:
            place = _step(path, ".required")
            self._lose(place, "required properties that are not defined", "the server refuses them")
            schema = {**schema, "required": existing}
        return schema

    def _closed(self, schema: JsonSchema, path: str) -> JsonSchema:
        if (schema["type"] if "type" in schema else _implied(schema)) != "object":
            return schema
        if schema.get("additionalProperties", False) is not False:
            self._lose(
                _step(path, ".additionalProperties"),
                "additional properties of an object",
                "the server does not allow them",
            )
        return {**schema, "additionalProperties": False}


def _step(path: str, step: str) -> str:
    """One step further, unless the path is too long to be read: schemas below one another may have names of any length."""
    return path + step if len(path) < MAX_TEXT_LENGTH else path


def _resolve_reference(root: JsonSchema, reference: str) -> JsonSchema | None:
    """What stands at the place that a reference such as `#/$defs/a` names."""
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, dict):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    return place if isinstance(place, dict) else None


def _has_plain_references(encoded: bytes) -> bool:
    """Whether every reference of a schema stands alone and leads into `$defs`. Looks at its JSON, which has no white space, because
    a large list of values would have to be walked."""
    references = encoded.count(b'{"$ref":') + encoded.count(b',"$ref":')
    return not references or len(PLAIN_REFERENCE.findall(encoded)) == references


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {str}


def _of_type(word: str, schema: JsonSchema) -> JsonSchema:
    """What a schema of several types says of one of them."""
    own = {keyword: value for keyword, value in schema.items() if keyword not in OF_ANY_TYPE}
    return {
        "type": word,
        **{keyword: value for keyword, value in own.items() if KEYWORDS_OF.get(keyword, word) == word},
    }


def _implied(schema: JsonSchema) -> str | None:
    """The type of a schema that does not say it."""
    return next((kind for keyword, kind in IMPLIES.items() if keyword in schema), None)


def _const_as_enum(schema: JsonSchema) -> JsonSchema:
    return {
        ("enum" if keyword == "const" else keyword): [value] if keyword == "const" else value
        for keyword, value in schema.items()
    }


def _all_in_one(schema: JsonSchema, counter: SchemaCounter) -> JsonSchema:
    """Schemas that must all hold, as one that says all they say; members of objects are put together."""
    parts = schema["allOf"]
    if not isinstance(parts, list):
        return schema
    counter.add_members(parts)
    if not all(isinstance(part, dict) and "$ref" not in part for part in parts):
        return schema
    own: JsonSchema = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    whole: JsonSchema = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}  # in their order, each once
    for part in (own, *parts):
        counter.add_nodes(1)  # parts that say the same are work too, though nothing is left of them
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


#: References that are written out before a schema counts as one without end.
MOST_INLINED: Final = 500
PLAIN_REFERENCE: Final = re.compile(rb'\{"\$ref":"#/\$defs/[^"\\]*+(?:\\.[^"\\]*+)*+"\}')
OF_ANY_TYPE: Final = frozenset({"description", "title", "nullable"})
REWRITTEN_KEYWORDS: Final = frozenset({"const", "allOf", "oneOf"})
#: What keywords hold, where it is more than a value. A choice is one among values of which a server may know only some.
HOLDS: Final = {
    **dict.fromkeys(("$defs", "definitions"), "definitions"),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), "schemas by name"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "schemas"),
    **dict.fromkeys(
        ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"), "schema"
    ),
    **dict.fromkeys(("format", "enum"), "choice"),
}
#: Keywords whose leaving out changes nothing that a model could obey.
SAYS_NOTHING: Final = frozenset({"$schema", "$id", "$comment", "$anchor"})
IMPLIES: Final = {"properties": "object", "items": "array", "enum": "string"}
#: Keywords that mean something to one type only.
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
#: For each type, those that mean nothing to it.
OF_OTHER_TYPES: Final = {
    word: frozenset(keyword for keyword, other in KEYWORDS_OF.items() if other != word)
    for word in set(KEYWORDS_OF.values())
}
