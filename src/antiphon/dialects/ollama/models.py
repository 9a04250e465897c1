"""Models in the form of Ollama's API: the entries of `/api/tags`, and the answer of `/api/show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final


def models_from_hub(names: Sequence[str]) -> dict[str, Any]:
    """The body of `/api/tags`. Size and digest of a model are not known."""
    return {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": UNKNOWN_TIME,
                "size": 0,
                "digest": "",
                "details": DETAILS,
                "capabilities": CAPABILITIES,
            }
            for name in names
        ]
    }


def model_from_hub(name: str) -> dict[str, Any]:
    """The body of `/api/show`."""
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": DETAILS,
        "model_info": {"general.architecture": "unknown", "general.basename": name},
        "capabilities": CAPABILITIES,
        "modified_at": UNKNOWN_TIME,
    }


UNKNOWN_TIME: Final = "1970-01-01T00:00:00Z"
#: The gateway offers all of them for each model; what a model lacks is reported as a loss or an error.
CAPABILITIES: Final = ["completion", "tools", "vision", "thinking"]
DETAILS: Final = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}
