"""Python functions as tools: schema from signature and docstring, calls from a model's arguments (B-9)."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import UNSET, Meta

from antiphon.client.functions import CallOutcome, call_function, tool_from_function


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


@dataclass
class Place:
    city: str
    country: str | None = None


def forecast(
    place: Place,
    days: Annotated[int, Meta(ge=1, le=7)] = 1,
    unit: Unit = Unit.METRIC,
    *,
    detail: Literal["short", "long"] = "short",
    tags: list[str] | None = None,
) -> str:
    """The weather of the next days.

    It may rain.

    Args:
        place: where,
            with its country if in doubt
        days (int): how many

    Returns:
        words
    """
    return f"{place.city}/{place.country}/{days}/{unit.value}/{detail}/{tags}"


def test_tool_schema_comes_from_signature_and_docstring() -> None:
    """B-9."""
    tool = tool_from_function(forecast)
    assert (tool.name, tool.param.description) == ("forecast", "The weather of the next days.\n\nIt may rain.")
    schema: Any = tool.param.parameters
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["place"], False)
    assert schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "description": "how many",
        "default": 1,
    }
    assert schema["properties"]["place"]["description"] == "where, with its country if in doubt"
    assert schema["properties"]["unit"]["default"] == "metric"
    assert schema["properties"]["detail"]["enum"] == ["long", "short"]
    assert schema["properties"]["tags"]["default"] is None
    assert schema["$defs"]["Place"]["required"] == ["city"]


def test_call_function_converts_arguments_to_the_signature() -> None:
    def call(arguments: str) -> CallOutcome:
        return asyncio.run(call_function(tool_from_function(forecast), arguments))

    assert call('{"place": {"city": "Lima"}}') == CallOutcome("Lima/None/1/metric/short/None")
    lenient = call('{"place": {"city": "Lima", "country": "PE"}, "days": "3", "unit": "imperial", "tags": ["x"]}')
    assert lenient == CallOutcome("Lima/PE/3/imperial/short/['x']")
    assert call('{"place": {"city": "Lima"}, "days": 9}').failed


def test_tool_schema_reads_sphinx_docstrings_and_annotations() -> None:
    def move(  # type: ignore[no-untyped-def]
        metres: Annotated[float, "how far"],
        heading: Annotated[int, "in degrees", Meta(ge=0)],
        anything=None,
        odd: object = ...,
    ) -> None:
        """Moves.

        :param metres: not this
        :param anything: whatever
            there is
        :returns: nothing
        """

    del move.__annotations__["odd"]
    tool = tool_from_function(move)
    schema: Any = tool.param.parameters
    assert tool.param.description == "Moves."
    assert schema["properties"]["metres"]["description"] == "how far"
    assert schema["properties"]["heading"] == {"type": "integer", "description": "in degrees", "minimum": 0}
    assert schema["properties"]["anything"] == {"description": "whatever there is", "default": None}
    assert schema["properties"]["odd"] == {}
    assert asyncio.run(call_function(tool, '{"metres": 1, "heading": 2, "anything": [3]}')) == CallOutcome("null")


def test_tool_without_parameters_and_docstring_can_be_called() -> None:
    async def now():  # type: ignore[no-untyped-def]
        return {"hour": 12}

    tool = tool_from_function(now)
    assert tool.param.description is UNSET
    assert tool.param.parameters == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert asyncio.run(call_function(tool, "")) == CallOutcome('{"hour":12}')


def test_unserialisable_result_is_a_failed_outcome() -> None:
    def made() -> object:
        return object()

    outcome = asyncio.run(call_function(tool_from_function(made), "{}"))
    assert outcome.failed
    assert outcome.output.startswith("TypeError")


def test_unsupported_signatures_are_refused() -> None:
    def many(*numbers: int) -> None: ...

    def placed(number: int, /) -> None: ...

    for function, word in ((many, "numbers"), (placed, "number")):
        with pytest.raises(TypeError, match=word):
            tool_from_function(function)
    with pytest.raises(TypeError, match="lambda"):
        tool_from_function(lambda: None)
    with pytest.raises(TypeError, match="cannot be a tool"):
        tool_from_function(object())  # type: ignore[arg-type]
