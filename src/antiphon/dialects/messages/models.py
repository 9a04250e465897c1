"""Models in the form of the Messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final


def model_from_hub(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": UNKNOWN_CREATION_TIME}


def models_from_hub(names: Sequence[str]) -> dict[str, Any]:
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": [*map(model_from_hub, names)], "has_more": False, "first_id": first, "last_id": last}


UNKNOWN_CREATION_TIME: Final = "1970-01-01T00:00:00Z"  # the creation time of models is not known
