"""JSON schema narrowed to what a server takes, every change a loss: for the parameters of tools and for structured output alike.

A `Narrowing` says what a server knows; `narrowed` gives a schema of nothing else. What can be said by other words is said by them
(`const` as `enum`, references by what they refer to), the rest is left out. A schema that needs no change comes back equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidValue, JsonTooDeep
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING
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


def narrow_schema(schema: JsonSchema, narrowing: Narrowing, path: str, losses: Losses) -> JsonSchema:
    """`schema` in what the server knows; `path` is where it stands in the request. Beyond `MAX_NODES` or `MAX_SIZE`: refused."""
    budget = _Budget(path)
    budget.check_size(len(msgspec.json.encode(schema)))
    return _Narrower(schema, narrowing, losses, budget).schema(schema, path, ())


class _Budget:
    """Counts what a schema has become once references and `allOf` are written out, and raises where that is too much."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._level = 0
        self.nodes = 0
        self.size = 0

    def enter(self) -> None:
        """One more schema, inside of those that were entered and not left."""
        self._level += 1
        self.nodes += 1
        if self._level > MAX_NESTING:
            raise JsonTooDeep(f"{self._path}: the schema is nested more than {MAX_NESTING} levels deep", param=self._path)
        if self.nodes > MAX_NODES:
            raise self._too_large(f"{MAX_NODES:,} nodes")

    def leave(self) -> None:
        self._level -= 1

    def add_value(self, value: Any) -> None:
        """The value of a keyword that is no schema."""
        self.size += len(value) if type(value) is str else len(msgspec.json.encode(value))
        self.check_size(self.size)

    def add_copies(self, nodes: int, size: int, copies: int) -> None:
        """All that was added since there were so many nodes and bytes, so many times again."""
        self.nodes += (self.nodes - nodes) * copies
        self.size += (self.size - size) * copies
        self.check_size(self.size)

    def check_size(self, size: int) -> None:
        if size > MAX_SIZE:
            raise self._too_large(f"{MAX_SIZE:,} bytes")

    def _too_large(self, bound: str) -> InvalidValue:
        what = f"the schema has more than {bound} once its references are written out"
        return InvalidValue(f"{self._path}: {what}; make it smaller", param=self._path)


class _Narrower:
    """Narrows the schemas of one document."""

    def __init__(self, root: JsonSchema, narrowing: Narrowing, losses: Losses, budget: _Budget) -> None:
        self._root = root
        self._budget = budget
        self._known = narrowing
        self._losses = losses
        self._inlines = narrowing.references == "inline" or (
            narrowing.references == "inline_unless_plain" and not _has_plain_references(root)
        )
        self._inlined = 0

    def schema(self, schema: Any, path: str, inside: tuple[str, ...]) -> JsonSchema:
        """One schema; `inside` are the references it stands in."""
        self._budget.enter()
        narrowed = self._narrowed(schema, path, inside)
        self._budget.leave()
        return narrowed

    def _narrowed(self, schema: Any, path: str, inside: tuple[str, ...]) -> JsonSchema:
        nodes, size = self._budget.nodes, self._budget.size
        if not isinstance(schema, dict):
            if schema is not True:  # which allows anything, as an empty schema does
                self._losses.add(path, "that nothing is allowed there", "the server has no such schema")
            schema = {}
        if "$ref" in schema and self._inlines:
            return self._referred(schema, path, inside)
        schema = self._said_otherwise(schema, path)
        found: JsonSchema = {}
        for keyword, value in schema.items():
            place = f"{path}.{keyword}"
            if keyword in DEFINITIONS and self._inlines:
                continue  # what refers to them holds them now
            if not self._knows(keyword):
                if keyword not in SAYS_NOTHING:
                    self._losses.add(place, f"the keyword {keyword!r} of a schema", "the server does not know it")
            elif keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
                found[keyword] = {name: self.schema(one, f"{place}.{name}", inside) for name, one in value.items()}
            elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
                found[keyword] = [self.schema(one, f"{place}[{at}]", inside) for at, one in enumerate(value)]
            elif keyword in SCHEMAS and not isinstance(value, bool):
                found[keyword] = self.schema(value, place, inside)
            elif self._may_stand(keyword, value, place):
                self._budget.add_value(value)
                found[keyword] = value
        return self._closed(self._typed(found, path, nodes, size), path)

    def _referred(self, schema: JsonSchema, path: str, inside: tuple[str, ...]) -> JsonSchema:
        """What a reference refers to, in its place; what stands beside the reference counts too."""
        reference = schema["$ref"]
        target = _found(self._root, reference)
        self._inlined += 1
        if reference in inside or self._inlined > MOST_INLINED:
            self._losses.add(path, f"what {reference!r} says", "the server knows no references, and written out it has no end")
            return self.schema({"type": "object"}, path, inside)
        if target is None:
            self._losses.add(path, f"the reference {reference!r}", "it refers to nothing that is there")
            target = {}
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        return self.schema({**target, **beside}, path, (*inside, reference))

    def _said_otherwise(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Keywords that the server does not know, by others that mean the same."""
        for keyword, other in OTHERWISE.items():
            if keyword in schema and not self._knows(keyword):
                schema = other(schema)
        if "oneOf" in schema and not self._knows("oneOf") and "anyOf" not in schema:
            self._losses.add(f"{path}.oneOf", "that exactly one of several schemas holds", "at least one must")
            schema = {("anyOf" if keyword == "oneOf" else keyword): value for keyword, value in schema.items()}
        return schema

    def _knows(self, keyword: str) -> bool:
        return self._known.keywords is None or keyword in self._known.keywords

    def _may_stand(self, keyword: str, value: Any, place: str) -> bool:
        if keyword == "format" and self._known.formats is not None and value not in self._known.formats:
            self._losses.add(place, f"the format {str(value)[:50]!r}", "the server does not know it")
            return False
        if keyword == "enum" and self._known.enum_of_strings and not all(isinstance(one, str) for one in value):
            self._losses.add(place, "the values that are allowed", "the server takes lists of strings only")
            return False
        return True

    def _typed(self, schema: JsonSchema, path: str, nodes: int, size: int) -> JsonSchema:
        """The type as the server spells it, and what such a server wants said with it. `nodes` and `size` were spent before."""
        if self._known.types == "json":
            return schema
        types = schema.pop("type", _implied(schema))
        given = [one for one in (types if isinstance(types, list) else [types]) if one]
        if "null" in given and len(given) > 1:
            schema["nullable"] = True
            given.remove("null")
        words = [str(one).upper() for one in given]
        if len(words) > 1:  # each type gets a schema of its own, with all that is inside
            self._budget.add_copies(nodes, size, len(words) - 1)
            beside = {keyword: value for keyword, value in schema.items() if keyword in OF_ANY_TYPE}
            return {**beside, "anyOf": [self._whole(_of_type(word, schema), path) for word in words]}
        if not words and "anyOf" not in schema:
            self._losses.add(path, "that any value may stand there", "the server wants a type, and got that of strings")
            words = ["STRING"]
        return self._whole({"type": words[0], **schema} if words else schema, path)

    def _whole(self, schema: JsonSchema, path: str) -> JsonSchema:
        """Lists must say what they hold, only members that are there can be required, and nothing is said that has no meaning."""
        word = schema.get("type")
        for keyword in [keyword for keyword in schema if KEYWORDS_OF.get(keyword, word) != word]:
            if keyword == "enum" or word is None:  # others mean nothing to any reader
                self._losses.add(
                    f"{path}.{keyword}", f"the keyword {keyword!r} of a schema", "the server wants another type with it"
                )
            schema = {name: value for name, value in schema.items() if name != keyword}
        if schema.get("type") == "ARRAY" and "items" not in schema:
            self._losses.add(path, "that a list may hold anything", "the server wants a type, and got that of strings")
            schema = {**schema, "items": {"type": "STRING"}}
        required, members = schema.get("required"), schema.get("properties", {})
        if required and not all(name in members for name in required):
            self._losses.add(f"{path}.required", "that members must be there of which nothing is said", "the server refuses it")
            schema = {**schema, "required": [name for name in required if name in members]}
        return schema

    def _closed(self, schema: JsonSchema, path: str) -> JsonSchema:
        if not self._known.closed_objects or schema.get("type", _implied(schema)) != "object":
            return schema
        if schema.get("additionalProperties", False) is not False:
            self._losses.add(f"{path}.additionalProperties", "that an object may have other members", "the server forbids it")
        return {**schema, "additionalProperties": False}


def _found(root: JsonSchema, reference: Any) -> JsonSchema | None:
    """The schema behind a reference into the same document; None if there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return place if isinstance(place, dict) else None


def _has_plain_references(schema: Any) -> bool:
    """Whether every reference stands alone and leads into `$defs`."""
    match schema:
        case {"$ref": reference}:
            return len(schema) == 1 and isinstance(reference, str) and reference.startswith("#/$defs/")
        case dict():
            return all(map(_has_plain_references, schema.values()))
        case list():
            return all(map(_has_plain_references, schema))
        case _:
            return True


def _of_type(word: str, schema: JsonSchema) -> JsonSchema:
    """What a schema of several types says of one of them."""
    own = {keyword: value for keyword, value in schema.items() if keyword not in OF_ANY_TYPE}
    return {"type": word, **{keyword: value for keyword, value in own.items() if KEYWORDS_OF.get(keyword, word) == word}}


def _implied(schema: JsonSchema) -> str | None:
    """The type of a schema that does not say it."""
    return next((kind for keyword, kind in IMPLIES.items() if keyword in schema), None)


def _const_as_enum(schema: JsonSchema) -> JsonSchema:
    return {
        ("enum" if keyword == "const" else keyword): [value] if keyword == "const" else value for keyword, value in schema.items()
    }


def _all_in_one(schema: JsonSchema) -> JsonSchema:
    """Schemas that must all hold, as one that says all they say; members of objects are put together."""
    parts = schema["allOf"]
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "$ref" not in part for part in parts):
        return schema
    own: JsonSchema = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    whole: JsonSchema = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}  # in their order, each once
    for part in (own, *parts):
        for keyword, value in part.items():
            whole.setdefault(keyword, value)
            if keyword == "properties" and isinstance(value, dict):
                properties.update(value)
            elif keyword == "required" and isinstance(value, list):
                required.update((name, None) for name in value if isinstance(name, str))
    together = {"properties": properties, "required": list(required)}
    return {**whole, **{keyword: value for keyword, value in together.items() if value}}


#: The most that a schema may become: narrowing it takes less than 5 ms.
MAX_NODES: Final = 1500
MAX_SIZE: Final = 256 * 1024  # bytes of JSON
#: References that are written out before a schema counts as one without end.
MOST_INLINED: Final = 500
OF_ANY_TYPE: Final = frozenset({"description", "title", "nullable"})
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
SCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas"}) | DEFINITIONS
LISTS_OF_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMAS: Final = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
#: Keywords whose leaving out changes nothing that a model could obey.
SAYS_NOTHING: Final = frozenset({"$schema", "$id", "$comment", "$anchor"})
OTHERWISE: Final[dict[str, Callable[[JsonSchema], JsonSchema]]] = {"const": _const_as_enum, "allOf": _all_in_one}
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
