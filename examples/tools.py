"""A model that calls Python functions: their schemas come from signature and docstring, calls are made side by side.

The embedded model is too small for this; name another with $ANTIPHON_MODEL.
"""

import asyncio
import os
from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from antiphon.client import AsyncClient, output_text


async def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, object]:
    """The weather in a city now.

    Args:
        city: its name, in English
        unit: of the temperature
    """
    await asyncio.sleep(0)  # here a real one would ask somebody
    return {"city": city, "sky": "clear", "temperature": 21 if unit == "celsius" else 70}


def time_in(zone: Annotated[str, "such as Europe/Paris"]) -> str:
    """The time in a time zone."""
    try:
        return datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes")
    except ZoneInfoNotFoundError:
        raise ValueError(f"there is no time zone {zone!r}") from None  # the model is told, and may try another


async def main() -> None:
    async with AsyncClient(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
        run = await client.run_tools(
            "What is the weather in Lima, and what time is it there?", [weather, time_in], max_tool_calls=8
        )
    for call in run.calls:
        print(f"{call.name}({call.arguments}) = {call.output}")
    print(output_text(run.response))


asyncio.run(main())
