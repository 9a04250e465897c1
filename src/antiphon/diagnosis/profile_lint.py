"""Check a body against a profile: report what the gateway must change before a server with that profile accepts it."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.diagnosis.finding import Finding
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.errors import ApiError
from antiphon.profiles import Profile
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def lint_for_profile(body: bytes, dialect: ServerDialectName, profile: Profile) -> list[Finding]:
    """Report what each quirk and each wire option of a profile changes in a request.

    Paths are paths in the hub request; in the responses dialect they are those of the body."""
    try:
        request, _ = CLIENT_DIALECTS[dialect].request_to_hub(body)
        return _find_changes(request, profile)
    except ApiError as error:
        path = error.param or ""
        return [
            Finding(
                rule="unsupported", path=path, problem=f"the request cannot be sent to such a server: {error.message}"
            )
        ]


def _find_changes(request: Request, profile: Profile) -> list[Finding]:
    findings: list[Finding] = []
    for quirk in profile.quirks:
        new_request = quirk.apply(request, Losses())
        path = (
            _first_difference(_as_json_value(request), _as_json_value(new_request), "")
            if new_request is not request
            else None
        )
        if path is not None:
            problem = (
                f"servers of {profile.name!r} do not accept this value; their profile's quirk {quirk.name} changes it"
            )
            findings.append(Finding(rule="unsupported", path=path, problem=problem))
        request = new_request
    _, losses = SERVER_DIALECTS[profile.dialect].request_from_hub(request, profile.wire)
    for loss in losses:
        problem = f"{loss.what} cannot be sent to {profile.name!r}: {loss.why}"
        findings.append(Finding(rule="unsupported", path=loss.path, problem=problem))
    return findings


def _as_json_value(request: Request) -> Any:
    return msgspec.json.decode(codec.encode(request))


def _first_difference(left: Any, right: Any, path: str) -> str | None:
    """Return the path of the first difference of two requests; None if they are equal."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in [*left, *(name for name in right if name not in left)]:
            member_path = f"{path}.{name}" if path else name
            if (name in left) != (name in right):
                return member_path
            difference = _first_difference(left[name], right[name], member_path)
            if difference is not None:
                return difference
        return None
    if isinstance(left, list) and isinstance(right, list):
        for index, (left_member, right_member) in enumerate(zip(left, right, strict=False)):
            difference = _first_difference(left_member, right_member, f"{path}[{index}]")
            if difference is not None:
                return difference
        return None if len(left) == len(right) else f"{path}[{min(len(left), len(right))}]"
    return None if left == right else path
