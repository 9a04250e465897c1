"""A body against a profile: what the gateway would have to change before a server of that kind takes it."""

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
    """What each quirk and each wire option of a profile changes in a request. Paths are those of the hub's request, which are the
    body's own in the responses dialect."""
    try:
        request, _ = TRANSLATORS[dialect][0](body)
        return _changed(request, profile)
    except ApiError as error:
        path = error.param or ""
        return [Finding(rule="unsupported", path=path, problem=f"no such server can be asked this: {error.message}")]


def _changed(request: Request, profile: Profile) -> list[Finding]:
    found: list[Finding] = []
    for quirk in profile.quirks:
        changed = quirk.apply(request, Losses())
        path = _first_difference(_plain(request), _plain(changed), "") if changed is not request else None
        if path is not None:
            said = f"servers of {profile.name!r} do not take this as it is; their profile's quirk {quirk.name} changes it"
            found.append(Finding(rule="unsupported", path=path, problem=said))
        request = changed
    _, losses = TRANSLATORS[profile.dialect][1](request, profile.wire)
    for loss in losses:
        said = f"{loss.what} cannot be sent to {profile.name!r}: {loss.why}"
        found.append(Finding(rule="unsupported", path=loss.path, problem=said))
    return found


def _plain(request: Request) -> Any:
    return msgspec.json.decode(codec.encode(request))


def _first_difference(one: Any, other: Any, path: str) -> str | None:
    """Where two requests part; None if they do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            inner = f"{path}.{name}" if path else name
            if (name in one) != (name in other):
                return inner
            found = _first_difference(one[name], other[name], inner)
            if found is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list):
        for at, (before, after) in enumerate(zip(one, other, strict=False)):
            found = _first_difference(before, after, f"{path}[{at}]")
            if found is not None:
                return found
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
