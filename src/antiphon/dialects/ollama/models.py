"""Models in the form of Ollama's API: the entries of `/api/tags`, and the answer of `/api/show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final


def models_from_hub(names: Sequence[str]) -> dict[str, Any]:
    """The body of `/api/tags`. Size and digest of a model are not known; `/api/show` has its capabilities."""
    return {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": UNKNOWN_TIME,
                "size": 0,
                "digest": "",
                "details": DETAILS,
            }
            for name in names
        ]
    }


def model_from_hub(name: str, capabilities: Sequence[str], context_size: int | None = None) -> dict[str, Any]:
    """The body of `/api/show`. The name of the field with the context size begins with the architecture."""
    model_info: dict[str, Any] = {"general.architecture": ARCHITECTURE, "general.basename": name}
    if context_size is not None:
        model_info[f"{ARCHITECTURE}.context_length"] = context_size
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": DETAILS,
        "model_info": model_info,
        "capabilities": capabilities,
        "modified_at": UNKNOWN_TIME,
    }


ARCHITECTURE: Final = "unknown"
UNKNOWN_TIME: Final = "1970-01-01T00:00:00Z"
DETAILS: Final = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}
