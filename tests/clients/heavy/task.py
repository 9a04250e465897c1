"""The texts of the task that every client does; `drivers/task.py` and `drivers/task.mjs` have its tool."""

from __future__ import annotations

from typing import Final

HELLO: Final = "Hello there, reader."
ANSWER: Final = "The note says to buy milk."
NO_ANSWER: Final = "There is no such note."
THOUGHT: Final = "I should read the note."
CITY: Final = {"city": "Rome", "population": 3}
NOTE: Final = "buy milk"
FAULT: Final = "no such note"
