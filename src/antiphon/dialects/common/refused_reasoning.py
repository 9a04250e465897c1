"""Detects that a server refused a request because of its reasoning, or of system messages after the start: a retry
without that part may succeed (RSN-3).

Servers report this only in the error message, so patterns of each dialect are matched. No pattern matches the error for
missing reasoning, because removing more of it would not help.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from antiphon.errors import ApiError, ClientFault

#: The part that a server refused: the reasoning in the history, the request for encrypted reasoning, the thinking
#: setting, its form, or the role of system messages.
RefusedPart = Literal[
    "system_messages",
    "reasoning",
    "encrypted_reasoning",
    "thinking",
    "thinking.adaptive",
    "thinking.enabled",
    "thinking.disabled",
    "thinking.between_tools",
]


def refused_part(error: ApiError) -> RefusedPart | None:
    """The part of the request that the server refused, None if the error has another cause."""
    if not isinstance(error, ClientFault) or error.code == "context_length_exceeded":
        return None
    if error.code == "invalid_encrypted_content" or any(pattern.search(error.message) for pattern in REASONING):
        return "reasoning"
    if error.param == "reasoning_effort" and EXTRA_FIELD.search(error.message):  # chat: servers without the field
        return "thinking"
    return next((part for part, pattern in SETTINGS if pattern.search(error.message)), None)


REASONING: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # responses: encrypted by another server or for another item; an item that is not stored or has no follower.
        r"encrypted[ _]content\b.{0,300}\b(?:not be|cannot be|failed to be) (?:verified|decrypted|parsed)",
        r"\bitem\b.{0,20}\brs_.{0,200}\b(?:not found|without its required)",
        # messages: an invalid or missing signature, and changed blocks.
        r"\binvalid\b.{0,20}\bsignature\b.{0,20}\bthinking\b",
        r"\bthinking\.signature\b.{0,20}\brequired",
        r"thinking`? blocks\b.{0,120}\bcannot be modified",
        # gemini: an invalid signature of a thought.
        r"\b(?:corrupted|invalid|malformed)\b.{0,20}\bthought[ _]?signature",
        r"\bthought[ _]?signature\b.{0,60}\b(?:not valid|invalid|corrupted|malformed|could not)",
        # chat: servers without these fields.
        r"\breasoning_(?:content|details)\b.{0,60}\b(?:unsupported|not (?:supported|permitted|allowed))",
        r"\b(?:unsupported|unexpected|unknown|extra)\b.{0,60}\breasoning_(?:content|details)\b",
    )
)
EXTRA_FIELD: Final = re.compile(r"\bextra inputs are not permitted\b", re.IGNORECASE)
FORMS: Final[dict[str, RefusedPart]] = {
    # messages: servers that permit only the roles user and assistant.
    r"\bunexpected role\W{1,3}system\b": "system_messages",
    r"\bmessages\.\d+\.role\b.{0,40}\binput should be\W{1,3}user\W{1,3}or\W{1,3}assistant": "system_messages",
    # responses: a model without reasoning.
    r"\bencrypted content is not supported\b": "encrypted_reasoning",
    # ollama and messages: a model without thinking. A refused value of the effort is another error.
    r"\bdoes not support thinking\b": "thinking",
    # chat: the same.
    r"\breasoning_effort\W{1,3}is not supported with this model\b": "thinking",
    r"\bunrecognized request arguments? supplied: (?:\w+, ){0,9}reasoning_effort\b": "thinking",
    # messages: a form that another model or a newer server uses.
    r"\bthinking\.type\.enabled\W{1,3}is not supported": "thinking.enabled",
    r"\bthinking\.type\.disabled\W{1,3}is not supported": "thinking.disabled",
    r"\bthinking\b.{1,80}\bbetween_tools\W{1,3}(?:is not supported|found using)": "thinking.between_tools",
    r"\badaptive thinking is not supported": "thinking.adaptive",
    r"\bthinking\b.{1,80}\badaptive\W{1,3}(?:is not supported|found using)": "thinking.adaptive",
}
SETTINGS: Final = tuple((part, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for pattern, part in FORMS.items())
