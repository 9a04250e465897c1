"""The models that a gateway serves, and which of them a command uses if the user names none or a wrong one."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.first_model import first_model
from antiphon.cli.gateway_metadata import request_metadata
from antiphon.cli.terminal import one_line
from antiphon.client import AsyncClient, Model
from antiphon.client.model_list import read_models
from antiphon.config.model_rules import upstream_model_name
from antiphon.profiles.providers import builtin_providers
from antiphon.protocol.suggestions import did_you_mean

MAX_PATTERNS: Final = 8  # in a message


class ServedModels(Struct, frozen=True):
    """The models that a server lists, and the patterns of other names that it serves if it is a gateway."""

    models: list[Model]
    patterns: list[str]
    is_gateway: bool = True

    @property
    def names(self) -> list[str]:
        return [model.id for model in self.models]

    def matches_pattern(self, name: str) -> bool:
        return any(upstream_model_name(pattern, name) is not None for pattern in self.patterns)


async def list_models(client: AsyncClient) -> ServedModels:
    """Ask the gateway. Other servers list no patterns."""
    answer = await request_metadata(client, "GET", "/models")
    models = read_models(answer)
    patterns = msgspec.json.decode(answer, type=_PatternList).patterns
    return ServedModels(models, patterns or [], is_gateway=patterns is not None)


def default_model(served: ServedModels, url: str) -> str:
    """Return the model that is used if the user names none. If the gateway lists none, say which names it serves."""
    model = first_model(served.names)
    if model is None:
        raise InvalidUsage(f"the gateway at {url} lists no models; {describe_patterns(served)}")
    return model


def suggest_model(name: str, served: ServedModels) -> str:
    """Suggest the closest name that the gateway lists, or that a provider has and the gateway serves."""
    return did_you_mean(name, map(one_line, [*served.names, *_example_models(served)]))


def describe_patterns(served: ServedModels) -> str:
    """Say which names that are not listed can be used."""
    if not served.patterns:
        return "add an upstream with models to its configuration (`antiphon init` finds some)"
    shown = ", ".join(map(one_line, served.patterns[:MAX_PATTERNS])) + (
        ", …" if len(served.patterns) > MAX_PATTERNS else ""
    )
    example = next(iter(_example_models(served)), None)
    return f"choose one that matches {shown} with --model" + (f", such as --model {example}" if example else "")


def _example_models(served: ServedModels) -> list[str]:
    examples = [provider.example for provider in builtin_providers() if provider.example]
    return [example for example in examples if served.matches_pattern(example)]


class _PatternList(Struct, frozen=True):
    patterns: list[str] | None = None
