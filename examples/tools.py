"""A model calls Python functions. Their schemas come from signature and docstring; the calls run concurrently.

The embedded model is too small for this. Set $ANTIPHON_MODEL to another model.
"""

import asyncio
import os
from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from antiphon import AsyncClient


async def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, object]:
    """Return the current weather in a city.

    Args:
        city: the English name of the city
        unit: the unit of the temperature
    """
    await asyncio.sleep(0)  # a real function would call a weather service
    return {"city": city, "sky": "clear", "temperature": 21 if unit == "celsius" else 70}


def time_in(zone: Annotated[str, "such as Europe/Paris"]) -> str:
    """Return the time in a time zone."""
    try:
        return datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes")
    except ZoneInfoNotFoundError:
        # The model gets this error and may try another zone.
        raise ValueError(f"unknown time zone {zone!r}") from None


async def main() -> None:
    async with AsyncClient(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
        run = await client.run_tools(
            "What is the weather in Lima, and what time is it there?", [weather, time_in], max_tool_calls=8
        )
    for call in run.calls:
        print(f"{call.name}({call.arguments}) = {call.output}")
    print(run.response.output_text)


asyncio.run(main())
