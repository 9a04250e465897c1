"""An answer as data: a type says what it looks like, the server sees to it, and the program gets an object."""

import os
from typing import Literal

import msgspec

from antiphon.client import Client, output_text


class Review(msgspec.Struct):
    """What a review says."""

    title: str
    stars: int
    mood: Literal["glad", "neutral", "angry"]


schema = msgspec.json.schema(Review)["$defs"]["Review"]
format = {"type": "json_schema", "name": "review", "schema": {**schema, "additionalProperties": False}, "strict": True}

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    response = client.create(
        "Review: 'The soup was cold, but I would come back for the cake.'", text={"format": format}
    )

review = msgspec.json.decode(output_text(response), type=Review)
print(f"{review.title}: {review.stars} stars, {review.mood}")
