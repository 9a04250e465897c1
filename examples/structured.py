"""Reads an answer as an object: a type defines the fields, the server follows the schema, the program decodes it."""

import os
from typing import Literal

import msgspec

from antiphon import Client


class Review(msgspec.Struct):
    """The content of a review."""

    title: str
    stars: int
    mood: Literal["glad", "neutral", "angry"]


schema = msgspec.json.schema(Review)["$defs"]["Review"]
text_format = {
    "type": "json_schema",
    "name": "review",
    "schema": {**schema, "additionalProperties": False},
    "strict": True,
}

with Client(model=os.environ.get("ANTIPHON_MODEL", "local")) as client:
    response = client.create(
        "Review: 'The soup was cold, but I would come back for the cake.'", text={"format": text_format}
    )

review = msgspec.json.decode(response.output_text, type=Review)
print(f"{review.title}: {review.stars} stars, {review.mood}")
