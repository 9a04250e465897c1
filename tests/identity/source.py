"""What the cases of one dialect are made from, and small values that several dialects share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct
from tests.identity.generator import Generator, Rule

from antiphon.dialects.dialect import ServerDialectName

MODEL: Final = "m"


class Case(NamedTuple):
    """A request and the answer to it: one object, or the events of a stream."""

    request: dict[str, Any]
    answer: list[dict[str, Any]]


class Source(Struct, frozen=True, kw_only=True):
    """The types of one dialect in its SDK, and how a case is made from them."""

    dialect: ServerDialectName
    roots: tuple[Any, ...]
    make_case: Callable[[Generator, bool], Case]
    rules: Mapping[str, Rule]
    #: Fields that are not generated, by the reason. See `Generator` for their names.
    left_out: Mapping[str, tuple[str, ...]]
    #: Fields that servers require although the SDK does not.
    required: frozenset[str] = frozenset()
    has_null: bool = True
    #: What must arrive of a case: the case itself, but for an exception that a requirement makes.
    expect: Callable[[Case], Case] = lambda case: case

    def generator(self, seed: int) -> Generator:
        names = frozenset(name for names in self.left_out.values() for name in names)
        return Generator(seed, rules=self.rules, left_out=names, required=self.required, has_null=self.has_null)


def make_schema(generator: Generator) -> dict[str, Any]:
    """A JSON Schema of an object."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "description": generator.text()},
        {"type": "integer", "minimum": 1},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "array", "items": {"type": "number"}},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ]
    names = generator.random.sample(PROPERTIES, generator.random.randint(1, 3))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: generator.random.choice(kinds) for name in names},
        "required": names[:1],
    }
    if generator.chance(0.3):
        schema["additionalProperties"] = False
    return schema


def make_arguments(generator: Generator) -> str:
    """The arguments of a call as JSON text."""
    return json.dumps(make_argument_object(generator), ensure_ascii=generator.chance())


def make_argument_object(generator: Generator) -> dict[str, Any]:
    names = generator.random.sample(PROPERTIES, generator.random.randint(1, 3))
    return {name: generator.json(1) for name in names}


def make_url(generator: Generator) -> str:
    return f"https://example.com/{generator.new_name('file')}.png"


def make_image_url(generator: Generator) -> str:
    return make_url(generator) if generator.chance() else f"data:image/png;base64,{PIXEL}"


PROPERTIES: Final = ("city", "unit", "count", "when")
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
