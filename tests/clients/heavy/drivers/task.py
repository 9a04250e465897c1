"""The task that every client does: its prompt, its tool, and its schema."""

from __future__ import annotations

from pydantic import BaseModel

PROMPT = "Read the note and answer."


class City(BaseModel):
    """A city."""

    city: str
    population: int


def read_note(title: str) -> str:
    """Reads a note.

    Args:
        title: The title of the note.
    """
    if title == "missing":
        raise ValueError("no such note: missing")
    return f"The note {title} says: buy milk."


PARAMETERS = {
    "type": "object",
    "properties": {"title": {"type": "string", "description": "The title of the note."}},
    "required": ["title"],
    "additionalProperties": False,
}
