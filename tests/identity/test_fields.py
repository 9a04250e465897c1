"""The generator makes every field of the installed SDKs, except those of a closed table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsBase
from tests.identity.generator import Generator
from tests.identity.inventory import PATH, count_fields, fields_text
from tests.identity.sdk_types import fields_of, full_name_of, name_of
from tests.identity.source import Source
from tests.identity.sources import SOURCES
from tests.sources import REPO

from antiphon.dialects.dialect import ServerDialectName

#: How many cases contain every field.
ENOUGH = 700
#: How many fields are not generated. `left_out` of each source gives the reasons.
NOT_GENERATED: dict[ServerDialectName, int] = {"chat": 18, "responses": 73, "messages": 13, "gemini": 33, "ollama": 1}
every_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def test_fields_are_those_of_the_installed_sdks() -> None:
    """A new release of an SDK may have new fields. Look at them, then run `python -m tests.identity`."""
    installed, listed = set(fields_text().splitlines()[1:]), set(PATH.read_text(encoding="utf-8").splitlines()[1:])
    assert sorted(installed - listed) == []
    assert sorted(listed - installed) == []


def test_page_on_dialects_names_the_versions_of_the_sdks() -> None:
    versions = PATH.read_text(encoding="utf-8").splitlines()[0].partition(" for ")[2]
    assert versions in (REPO / "docs" / "dialects.md").read_text(encoding="utf-8")


@every_source
def test_number_of_fields_that_are_not_generated(source: Source) -> None:
    kinds, generated, left_out = count_fields(source)
    print(f"{source.dialect}: {kinds} types, {generated} fields generated, {left_out} not")
    assert left_out == NOT_GENERATED[source.dialect]


@every_source
def test_exceptions_are_fields_of_the_sdk(source: Source) -> None:
    everything = Generator(0, rules={}, left_out=()).kinds(*source.roots)
    types = {name for kind in everything for name in (name_of(kind), full_name_of(kind))}
    fields = {
        f"{name}.{field.name}"
        for kind in everything
        for field in fields_of(kind)
        for name in (name_of(kind), full_name_of(kind))
    }
    named = [*source.required, *(name for names in source.left_out.values() for name in names)]
    assert [name for name in named if name not in types | fields] == []


@pytest.mark.slow
@pytest.mark.without_coverage
@every_source
def test_cases_contain_every_field(source: Source) -> None:
    generator = source.generator(0)
    fields = {(kind, field.name) for kind in generator.kinds(*source.roots) for field in generator.fields(kind)}
    for number in range(ENOUGH):
        source.make_case(generator, bool(number % 2))
        if fields <= generator.counts.keys():
            break
    assert [f"{full_name_of(kind)}.{name}" for kind, name in sorted(fields - generator.counts.keys(), key=str)] == []


def test_beta_types_of_messages_have_the_fields_of_the_others() -> None:
    everything = Generator(0, rules={}, left_out=())
    stable = everything.kinds(MessageCreateParamsBase, Message, RawMessageStreamEvent)
    beta = everything.kinds(*SOURCES["messages"].roots)
    assert _field_names(stable) - _field_names(beta) == set()


def _field_names(kinds: Iterable[Any]) -> set[str]:
    return {field.name for kind in kinds for field in fields_of(kind)}


def test_cases_are_the_same_in_every_run() -> None:
    for source in SOURCES.values():
        first, second = source.generator(3), source.generator(3)
        for number in range(4):
            assert source.make_case(first, bool(number % 2)) == source.make_case(second, bool(number % 2))
