"""Limits the size of the JSON schemas of a request, for each schema and for all together.

Code that rewrites a schema counts its work here: references, `allOf` and lists of types multiply, so a short schema can
expand to millions of nodes. A request that exceeds a limit is refused with the path of the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from antiphon.errors import InvalidValue, JsonTooDeep
from antiphon.protocol.nesting import MAX_NESTING


class SchemaBudget:
    """The common budget of all schemas of one request, which are counted one after the other."""

    def __init__(self) -> None:
        self._nodes = 0
        self._size = 0
        self._last: SchemaCounter | None = None

    def counter(self, path: str) -> SchemaCounter:
        """Starts the counter of the next schema, which is at `path`."""
        if self._last is not None:
            self._nodes += self._last.nodes
            self._size += self._last.size
        self._last = SchemaCounter(path, MAX_TOTAL_NODES - self._nodes, MAX_TOTAL_SIZE - self._size)
        return self._last


class SchemaCounter:
    """Counts the expanded size of one schema, and raises if it exceeds a limit.

    A schema with up to four keywords is one node, one with up to eight is two, and so on. Each loss is one node more.
    """

    def __init__(self, path: str, nodes_left: int, size_left: int) -> None:
        self._path = path
        self._max_nodes = min(MAX_NODES, nodes_left)
        self._max_size = min(MAX_SIZE, size_left)
        self._level = 0
        self.nodes = 0
        self.size = 0

    def enter(self, schema: Collection[str]) -> None:
        """Counts a schema nested in the current one."""
        self._level += 1
        self.nodes += (len(schema) + 3) // 4 or 1
        self.size += sum(map(len, schema))
        self._check()

    def leave(self) -> None:
        self._level -= 1

    def add_nodes(self, count: int) -> None:
        self.nodes += count
        self._check()

    def add_members(self, members: Collection[Any]) -> None:
        """Counts keywords, names or list members that are visited but are not schemas."""
        self.add_nodes((len(members) + 3) // 4)

    def add_names(self, names: Iterable[str]) -> None:
        """Counts the size of written member names."""
        self.add_size(sum(map(len, names)))

    def add_size(self, size: int) -> None:
        self.size += size
        self._check()

    def add_copies(self, nodes: int, size: int, copies: int) -> None:
        """Counts copies of everything added since the counts were `nodes` and `size`. Each copy is one node more."""
        self.nodes += (self.nodes - nodes + 1) * copies
        self.size += (self.size - size) * copies
        self._check()

    def check_size(self, size: int) -> None:
        """Checks a size without adding it."""
        if size > MAX_SIZE:
            raise self._too_large(f"{MAX_SIZE:,} bytes")

    def _check(self) -> None:
        if self.nodes > self._max_nodes:
            raise (
                self._too_large(f"{MAX_NODES:,} nodes")
                if self.nodes > MAX_NODES
                else self._too_much(f"{MAX_TOTAL_NODES:,} nodes")
            )
        if self.size > self._max_size:
            raise (
                self._too_large(f"{MAX_SIZE:,} bytes")
                if self.size > MAX_SIZE
                else self._too_much(f"{MAX_TOTAL_SIZE:,} bytes")
            )
        if self._level > MAX_NESTING:
            raise JsonTooDeep(
                f"{self._path}: the schema is nested more than {MAX_NESTING} levels deep", param=self._path
            )

    def _too_large(self, bound: str) -> InvalidValue:
        problem = f"the schema has more than {bound} after its references are resolved"
        return InvalidValue(f"{self._path}: {problem}; send a smaller schema", param=self._path)

    def _too_much(self, bound: str) -> InvalidValue:
        problem = f"the schemas of the request have more than {bound} after their references are resolved"
        return InvalidValue(f"{self._path}: {problem}; send fewer tools or smaller schemas", param=self._path)


#: For one schema: rewriting it takes less than 5 ms.
MAX_NODES: Final = 1250
MAX_SIZE: Final = 256 * 1024  # bytes of JSON
#: For all tools of a request: less than 50 ms.
MAX_TOTAL_NODES: Final = 10 * MAX_NODES
MAX_TOTAL_SIZE: Final = 10 * MAX_SIZE
