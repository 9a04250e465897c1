"""Check a body against a profile: report what the gateway must change before a server with that profile accepts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.diagnosis.finding import Finding
from antiphon.dialects import chat, gemini, messages, responses
from antiphon.errors import ApiError
from antiphon.profiles import Dialect, Profile
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def lint_for_profile(body: bytes, dialect: Dialect, profile: Profile) -> list[Finding]:
    """Report what each quirk and each wire option of a profile changes in a request.

    Paths are paths in the hub request; in the responses dialect they are those of the body."""
    try:
        request, _ = TRANSLATORS[dialect][0](body)
        return _changed(request, profile)
    except ApiError as error:
        path = error.param or ""
        return [
            Finding(
                rule="unsupported", path=path, problem=f"the request cannot be sent to such a server: {error.message}"
            )
        ]


def _changed(request: Request, profile: Profile) -> list[Finding]:
    findings: list[Finding] = []
    for quirk in profile.quirks:
        changed = quirk.apply(request, Losses())
        path = _first_difference(_plain(request), _plain(changed), "") if changed is not request else None
        if path is not None:
            problem = (
                f"servers of {profile.name!r} do not accept this value; their profile's quirk {quirk.name} changes it"
            )
            findings.append(Finding(rule="unsupported", path=path, problem=problem))
        request = changed
    _, losses = TRANSLATORS[profile.dialect][1](request, profile.wire)
    for loss in losses:
        problem = f"{loss.what} cannot be sent to {profile.name!r}: {loss.why}"
        findings.append(Finding(rule="unsupported", path=loss.path, problem=problem))
    return findings


def _plain(request: Request) -> Any:
    return msgspec.json.decode(codec.encode(request))


def _first_difference(one: Any, other: Any, path: str) -> str | None:
    """Return the path of the first difference of two requests; None if they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            inner = f"{path}.{name}" if path else name
            if (name in one) != (name in other):
                return inner
            difference = _first_difference(one[name], other[name], inner)
            if difference is not None:
                return difference
        return None
    if isinstance(one, list) and isinstance(other, list):
        for at, (before, after) in enumerate(zip(one, other, strict=False)):
            difference = _first_difference(before, after, f"{path}[{at}]")
            if difference is not None:
                return difference
        return None if len(one) == len(other) else f"{path}[{min(len(one), len(other))}]"
    return None if one == other else path


RequestReader = Callable[[bytes], tuple[Request, Losses]]
RequestWriter = Callable[[Request, Any], tuple[bytes, Losses]]
TRANSLATORS: Final[dict[Dialect, tuple[RequestReader, RequestWriter]]] = {
    "chat": (chat.request_to_hub, chat.request_from_hub),
    "responses": (responses.request_to_hub, responses.request_from_hub),
    "messages": (messages.request_to_hub, messages.request_from_hub),
    "gemini": (gemini.request_to_hub, gemini.request_from_hub),
}
