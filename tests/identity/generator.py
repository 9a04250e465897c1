"""Makes random JSON from the types of an SDK.

The generator remembers which fields it has made. Fields that it has not made yet come first, so that a few hundred
values contain every field. Values are the same in every run with the same seed.
"""

from __future__ import annotations

import base64
import datetime
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.identity.sdk_types import (
    Field,
    fields_of,
    full_name_of,
    is_object,
    item_hint,
    members_of,
    name_of,
    objects_below,
    value_hint,
    words_of,
)

#: Makes the value of one field, where the type alone does not say what is possible.
Rule = Callable[["Generator"], Any]


class Generator:
    """`rules`, `left_out` and `required` name fields as `Type.field`. `rules` and `left_out` also take `*.field`, a field
    of any type. `left_out` also takes a type alone, and both with the module: `module.Type.field`. `required` are fields
    that a server requires although the SDK does not."""

    def __init__(
        self,
        seed: int,
        *,
        rules: Mapping[str, Rule],
        left_out: Container[str],
        required: Container[str] = (),
        has_null: bool = True,
        size: int = 150,
    ) -> None:
        self.random = Random(seed)
        self.counts: Counter[tuple[Any, str]] = Counter()
        self.has_null = has_null
        self._rules = rules
        self._left_out = left_out
        self._required = required
        self._size = size
        self._left = 0
        self._new: set[Any] = set()
        self._number = 0
        self._fields: dict[Any, list[Field]] = {}
        self._kinds: dict[tuple[Any, ...], dict[Any, set[Any]]] = {}

    def start_case(self, *roots: Any) -> None:
        """Starts a value of about `size` members. Looks which objects below the roots have fields not made yet."""
        self._left = self._size
        self._new = self._objects_with_new_fields(roots)

    def object(self, kind: Any, /, **given: Any) -> dict[str, Any]:
        """An object with all its required fields, some of the others, and the given ones. `...` leaves a field out."""
        chosen: dict[str, Any] = {}
        fields = [field for field in self.fields(kind) if given.get(field.name) is not ...]
        for field in self.random.sample(fields, len(fields)):
            if field.name in given:
                chosen[field.name] = given[field.name]
            elif field.is_required or self._key(kind, field) in self._required or self._wants(kind, field):
                chosen[field.name] = self._field_value(kind, field)
            else:
                continue
            self._left -= 1
            self.counts[kind, field.name] += 1
        chosen |= {name: value for name, value in given.items() if value is not ... and name not in chosen}
        if self.random.random() < UNKNOWN_SHARE:
            chosen["unknown_member"] = self.json()
        return chosen

    def value(self, hint: Any) -> Any:
        """A value of a type."""
        hint = self._choose(hint)
        if hint is type(None):
            return None
        if words := words_of(hint):
            return self.random.choice(words)
        if is_object(hint):
            return self.object(hint)
        if (inner := item_hint(hint)) is not None:
            return [self.value(inner) for _ in range(self._length())]
        if (inner := value_hint(hint)) is not None:
            return {self.word(): self.value(inner) for _ in range(self._length())}
        return SCALARS[hint](self)

    def fields(self, kind: Any) -> list[Field]:
        """The fields of a type that are generated."""
        if kind not in self._fields:
            self._fields[kind] = [field for field in fields_of(kind) if not self._is_left_out(kind, field)]
        return self._fields[kind]

    def kinds(self, *roots: Any) -> dict[Any, set[Any]]:
        """The objects below some types, each with the objects that have it as a member."""
        if roots not in self._kinds:
            self._kinds[roots] = self._find_kinds(roots)
        return self._kinds[roots]

    def pick(self, kinds: Sequence[Any]) -> Any:
        """One of several types, most often one with fields not made yet."""
        new = [kind for kind in kinds if any(below in self._new for below in objects_below(kind))]
        return self.random.choice(new if new and self.chance(NEW_SHARE) else kinds)

    # Simple values

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def word(self) -> str:
        return self.random.choice(WORDS)

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 5)))

    def new_name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self._number += 1
        return f"{prefix}_{self._number}"

    def base64(self) -> str:
        return base64.b64encode(self.random.randbytes(12)).decode()

    def json(self, depth: int = 2) -> Any:
        """JSON that nobody has described."""
        kinds: list[Callable[[], Any]] = [self.text, lambda: self.random.randint(-9, 9999), self.chance]
        if depth:
            kinds += [lambda: [self.json(depth - 1)], lambda: self.json_object(depth - 1)]
        return self.random.choice(kinds)()

    def json_object(self, depth: int = 1) -> dict[str, Any]:
        return {name: self.json(depth) for name in self.random.sample(WORDS, self.random.randint(1, 2))}

    def split(self, text: str) -> list[str]:
        """Pieces of a text, at least one, none of them empty if the text is not."""
        count = self.random.randint(0, min(3, max(0, len(text) - 1)))
        places = sorted(self.random.sample(range(1, len(text)), count)) if count else []
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    # What to make

    def _field_value(self, kind: Any, field: Field) -> Any:
        for key in (self._key(kind, field), f"*.{field.name}"):
            if rule := self._rules.get(key):
                return rule(self)
        if self.has_null and type(None) in members_of(field.hint) and self.chance(NULL_SHARE):
            return None
        return self.value(field.hint)

    def _wants(self, kind: Any, field: Field) -> bool:
        if self._left <= 0:
            return False
        is_new = not self.counts[kind, field.name] or any(below in self._new for below in objects_below(field.hint))
        return self.chance(NEW_SHARE if is_new else OTHER_SHARE)

    def _choose(self, hint: Any) -> Any:
        """One member of a union, `null` only where nothing else is possible."""
        members = [each for each in members_of(hint) if each not in HOST_TYPES and not self._is_type_left_out(each)]
        members = [each for each in members if each is not type(None)] or [type(None)]
        if self._left <= 0:
            simple = [each for each in members if not is_object(each) and item_hint(each) is None]
            members = simple or members
        return self.pick(members)

    def _length(self) -> int:
        return self.random.randint(1, 2) if self._left > 0 else 1

    def _is_left_out(self, kind: Any, field: Field) -> bool:
        keys = (self._key(kind, field), f"*.{field.name}", f"{full_name_of(kind)}.{field.name}")
        return any(key in self._left_out for key in keys)

    def _key(self, kind: Any, field: Field) -> str:
        return f"{name_of(kind)}.{field.name}"

    def _is_type_left_out(self, hint: Any) -> bool:
        return is_object(hint) and (name_of(hint) in self._left_out or full_name_of(hint) in self._left_out)

    def _find_kinds(self, roots: tuple[Any, ...]) -> dict[Any, set[Any]]:
        parents: dict[Any, set[Any]] = {}
        todo: list[tuple[Any, Any]] = [(None, kind) for root in roots for kind in objects_below(root)]
        while todo:
            parent, kind = todo.pop()
            if self._is_type_left_out(kind):
                continue
            if kind not in parents:
                parents[kind] = set()
                todo += [(kind, below) for field in self.fields(kind) for below in objects_below(field.hint)]
            parents[kind] |= {parent} - {None}
        return parents

    def _objects_with_new_fields(self, roots: tuple[Any, ...]) -> set[Any]:
        parents = self.kinds(*roots)
        new = {kind for kind in parents if any(not self.counts[kind, field.name] for field in self.fields(kind))}
        todo = list(new)
        while todo:
            for parent in parents[todo.pop()] - new:
                new.add(parent)
                todo.append(parent)
        return new


#: How often a field is made that is not required: one that was not made yet, or any other.
NEW_SHARE: Final = 0.7
OTHER_SHARE: Final = 0.1
NULL_SHARE: Final = 0.1
#: How many objects have a member that no SDK knows.
UNKNOWN_SHARE: Final = 0.04
WORDS: Final = ("red", "green", "Grün", "日本", "one\ntwo", "42", "🙂", "tail ", "x" * 30, 'a "quoted" word')
NAMES: Final = ("city", "unit", "count", "when")
#: Types that stand for files and classes of the program that uses an SDK.
HOST_TYPES: Final = frozenset({type})
SCALARS: Final[dict[Any, Rule]] = {
    str: Generator.text,
    bool: Generator.chance,
    int: lambda generator: generator.random.randint(0, 5000),
    float: lambda generator: generator.random.randint(1, 999) / 1000,
    bytes: Generator.base64,
    object: Generator.json,
    Any: Generator.json,
    datetime.datetime: lambda generator: f"2026-01-02T03:04:{generator.random.randint(10, 59)}Z",
}
