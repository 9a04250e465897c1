"""Classifies the failure of an attempt: it decides whether the same target, another one or none is asked next."""

from __future__ import annotations

import re
from typing import Final, Literal

from antiphon.errors import AnswerTooLarge, ApiError, ClientFault, NoAnswer, UpstreamFault

#: `connection`: no answer began. `server`: the server failed, was too slow or broke off. `rate_limit` and
#: `credentials` concern one key. `context_length` and `refusal` concern the model. `request`: no other target would do
#: better. `gateway`: not a failure of the target.
FailureKind = Literal[
    "connection", "server", "rate_limit", "credentials", "context_length", "refusal", "request", "gateway"
]


def classify_failure(error: ApiError) -> FailureKind:
    """The kind of a failure, by its meaning, which the dialects have read from status, code and message."""
    if error.code == REFUSAL_CODE:
        return "refusal"
    match error:
        case NoAnswer():
            return "connection"
        case AnswerTooLarge():
            return "gateway"
        case UpstreamFault():
            return KIND_OF_CODE.get(error.code, "server")
        case ClientFault(code="context_length_exceeded"):
            return "context_length"
        case ClientFault():
            is_flagged = error.code == "invalid_prompt" and FLAGGED_PROMPT.search(error.message) is not None
            is_refusal = error.code in REFUSAL_CODES or is_flagged or REFUSAL_MESSAGE.search(error.message) is not None
            return "refusal" if is_refusal else "request"
        case _:
            return "gateway"


def model_refusal() -> UpstreamFault:
    """The failure of an attempt whose answer is a refusal, where other targets are configured for refusals."""
    refusal = UpstreamFault("the model refused to answer", code=REFUSAL_CODE)
    refusal.was_paid = True
    return refusal


#: The kinds after which the same target may be asked again in a later round.
REPEATABLE_KINDS: Final[frozenset[FailureKind]] = frozenset({"connection", "server", "rate_limit"})
#: The kinds that count against the health of a target.
UNHEALTHY_KINDS: Final[frozenset[FailureKind]] = frozenset({"connection", "server"})
#: The kinds that concern one key.
KEY_KINDS: Final[frozenset[FailureKind]] = frozenset({"credentials", "rate_limit"})
REFUSAL_CODE: Final = "model_refusal"
KIND_OF_CODE: Final[dict[str, FailureKind]] = {
    "upstream_unavailable": "connection",
    "upstream_auth_failed": "credentials",
    "rate_limit_exceeded": "rate_limit",
}
# Codes of providers for a request that their content filter refuses.
REFUSAL_CODES: Final = frozenset({"content_policy_violation", "content_filter", "moderation_blocked"})
REFUSAL_MESSAGE: Final = re.compile(
    r"(?i)content (?:management )?polic(?:y|ies)|safety system|content filter(?!['\"`\w])(?!.{0,40}\bparameter)"
)
# Some servers have one code for prompts that they flag and for invalid ones.
FLAGGED_PROMPT: Final = re.compile(r"(?i)\bflagged as potentially violating\b|\bfor safety reasons\b")
