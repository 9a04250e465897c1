"""The settings of routing: models with several targets, retries, and the health of targets."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

# A day is more than any answer takes, and little enough for every event loop's clock.
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
MAX_PRIORITY: Final = 100
Strategy = Literal["weighted", "least-busy", "fastest"]


class TargetConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target of a model: an upstream, and its name for the model."""

    upstream: Annotated[str, Meta(description="The `name` of an upstream.")]
    model: Annotated[str, Meta(description="The upstream's own name for the model.")]
    priority: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_PRIORITY,
            description="Targets with a lower number are asked first: those of 2 if all of 1 fail.",
        ),
    ] = 1
    weight: Annotated[
        int, Meta(ge=1, le=1_000_000, description="The share of the requests among targets of the same priority.")
    ] = 1


class RetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how long the targets of a model are asked. It applies to models with an entry in `[[models]]`,
    with several targets, or with several keys; `[models.retry]` sets it for one model."""

    rounds: Annotated[
        int, Meta(ge=1, le=10, description="How often each target is asked: once in each round, with a pause between.")
    ] = 2
    deadline: Annotated[
        Seconds,
        Meta(description="Seconds from the request in which attempts may begin, until the first content of an answer."),
    ] = 120.0


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model with several targets: if one fails, the next is asked ([routing](routing.md))."""

    name: Annotated[str, Meta(description="The name that clients use.")]
    targets: Annotated[list[TargetConfig], Meta(description="Where the model is asked.")]
    strategy: Annotated[
        Strategy,
        Meta(
            description="How a target is chosen within one priority: `weighted` at random by weight, `least-busy` with "
            "the fewest requests in flight for its weight, `fastest` with the shortest time until its first content."
        ),
    ] = "weighted"
    prefer: Annotated[
        Literal["fewest-losses"] | None,
        Meta(
            description="`fewest-losses`: within one priority, the target whose translation of the request loses least "
            "is asked first, before the strategy decides."
        ),
    ] = None
    on_context_length: Annotated[
        list[TargetConfig],
        Meta(description="Targets for a request that is too long for the target that was asked."),
    ] = field(default_factory=list)
    on_refusal: Annotated[
        list[TargetConfig],
        Meta(description="Targets for a request that the model or its content filter refuses."),
    ] = field(default_factory=list)
    retry: Annotated[
        RetryConfig | None, Meta(description="Its own `[retry]`; values that are not set here come from `[retry]`.")
    ] = None


class HealthConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a target rests: it is asked only if all others fail. After the rest, the gateway sends it
    one request as a test. An only target never rests."""

    window: Annotated[Seconds, Meta(description="The seconds over which requests and failures are counted.")] = 60.0
    min_requests: Annotated[
        int, Meta(ge=1, le=10_000, description="The number of requests in the window below which no target rests.")
    ] = 5
    failure_share: Annotated[
        float, Meta(gt=0, le=1, description="The share of failures in the window from which a target rests.")
    ] = 0.5
    rest: Annotated[Seconds, Meta(description="The seconds for which a target rests.")] = 30.0
    check_interval: Annotated[
        Seconds | None,
        Meta(
            description="Seconds between active checks of resting targets: the gateway asks for their list of models, "
            "and an answer ends the rest. Absent: only requests of clients end it."
        ),
    ] = None
