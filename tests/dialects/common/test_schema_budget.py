"""The limits on schemas: what counts as a node, for one schema and for all of a request."""

from __future__ import annotations

import pytest

from antiphon.dialects.common.schema_budget import MAX_NODES, MAX_SIZE, MAX_TOTAL_NODES, MAX_TOTAL_SIZE, SchemaBudget
from antiphon.errors import InvalidValue, JsonTooDeep
from antiphon.protocol.nesting import MAX_NESTING


@pytest.mark.parametrize(("keywords", "nodes"), [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_schema_counts_one_node_per_four_keywords(keywords: int, nodes: int) -> None:
    counter = SchemaBudget().counter("p")
    counter.enter({f"k{number}": 1 for number in range(keywords)})
    assert (counter.nodes, counter.size) == (nodes, 2 * keywords)


def test_copies_count_with_their_content() -> None:
    counter = SchemaBudget().counter("p")
    counter.add_nodes(10)
    counter.add_size(100)
    counter.add_copies(4, 60, 3)
    assert (counter.nodes, counter.size) == (10 + 3 * 7, 100 + 3 * 40)


def test_budget_counts_all_schemas_and_names_the_first_excess() -> None:
    budget = SchemaBudget()
    for number in range(MAX_TOTAL_NODES // MAX_NODES):
        budget.counter(f"tools[{number}].parameters").add_nodes(MAX_NODES)
    counter = budget.counter("tools[10].parameters")
    with pytest.raises(InvalidValue, match="the schemas of the request have more than 12,500 nodes") as refused:
        counter.add_nodes(1)
    assert refused.value.param == "tools[10].parameters"


def test_oversized_single_schema_is_refused_as_such() -> None:
    budget = SchemaBudget()
    budget.counter("p").add_nodes(MAX_NODES)
    with pytest.raises(InvalidValue, match="the schema has more than 1,250 nodes"):
        budget.counter("p").add_nodes(MAX_NODES + 1)
    with pytest.raises(InvalidValue, match="the schema has more than 262,144 bytes"):
        SchemaBudget().counter("p").add_size(MAX_SIZE + 1)
    with pytest.raises(InvalidValue, match="the schema has more than 262,144 bytes"):
        SchemaBudget().counter("p").check_size(MAX_SIZE + 1)


def test_nesting_is_counted_until_it_is_left() -> None:
    counter = SchemaBudget().counter("p")
    for _ in range(MAX_NESTING):
        counter.enter(())
    counter.leave()
    counter.enter(())
    with pytest.raises(JsonTooDeep, match="more than 256 levels") as refused:
        counter.enter(())
    assert refused.value.param == "p"


def test_schema_of_the_largest_size_is_refused_only_for_the_budget() -> None:
    """A schema of exactly the largest size would be accepted alone."""
    SchemaBudget().counter("p").add_size(MAX_SIZE)
    SchemaBudget().counter("p").add_nodes(MAX_NODES)
    budget = SchemaBudget()
    budget.counter("p").add_size(1)
    for _ in range(MAX_TOTAL_SIZE // MAX_SIZE - 1):
        budget.counter("p").add_size(MAX_SIZE)
    with pytest.raises(InvalidValue, match="the schemas of the request have more than 2,621,440 bytes"):
        budget.counter("p").add_size(MAX_SIZE)
    budget = SchemaBudget()
    budget.counter("p").add_nodes(1)
    for _ in range(MAX_TOTAL_NODES // MAX_NODES - 1):
        budget.counter("p").add_nodes(MAX_NODES)
    with pytest.raises(InvalidValue, match="the schemas of the request have more than 12,500 nodes"):
        budget.counter("p").add_nodes(MAX_NODES)


def test_checked_size_may_be_the_largest() -> None:
    SchemaBudget().counter("p").check_size(MAX_SIZE)
