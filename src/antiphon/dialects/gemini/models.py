"""Models in the form of the Gemini API: their resource names, and their actions in paths.

A client chooses the name of the model, which becomes a part of a path; it cannot select another path of the server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from antiphon.dialects.gemini.request_in import request_to_hub
from antiphon.errors import InvalidValue
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def model_resource_name(model: str) -> str:
    """The full resource name of a model. Servers resolve `models/x/../../y` to `y`, so such names are refused."""
    name = model if RESOURCE.match(model) else f"models/{model}"
    if not all(part.strip(".") for part in name.split("/")):
        raise InvalidValue(
            f"model: expected a model name without empty path segments, got {model[:100]!r}", param="model"
        )
    return name


def request_at_path(path: str, body: bytes) -> tuple[Request, Losses]:
    """The request of a body that was sent to a path, which names the model and the choice of a stream."""
    request, losses = request_to_hub(body)
    model, _, action = path.partition("/models/")[2].rpartition(":")
    return replace(request, model=model, stream=action == STREAMING), losses


def model_from_hub(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": [*TURN_ACTIONS, "countTokens"],
    }


def models_from_hub(names: Sequence[str]) -> dict[str, Any]:
    return {"models": [*map(model_from_hub, names)]}


INSTEAD_OF_INTERACTIONS: Final = (
    "use models.generate_content or chats of the SDK (POST /v1beta/models/{model}:generateContent or "
    ":streamGenerateContent), or POST /v1/responses, which stores responses and continues them"
)
STREAMING: Final = "streamGenerateContent"
TURN_ACTIONS: Final = ("generateContent", STREAMING)
RESOURCE: Final = re.compile(r"(?:[\w.-]+/)*(?:models|tunedModels)/")
