"""Whether a server refused a request because of what it says of reasoning: then the same without that may be taken (RSN-3).

Servers say so in words alone. Each pattern is of one dialect, and none means a request that lacks reasoning: that would not be
mended by leaving out more of it.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from antiphon.errors import ApiError, ClientFault

#: What a server did not take: the reasoning in the history, being asked to encrypt what the model reasons now, or the form in which
#: it is told whether to think.
RefusedPart = Literal[
    "reasoning",
    "encrypted_reasoning",
    "thinking.adaptive",
    "thinking.enabled",
    "thinking.disabled",
    "thinking.between_tools",
]


def refused_part(error: ApiError) -> RefusedPart | None:
    """The part of a request without which the server may take it, None if there is none."""
    if not isinstance(error, ClientFault) or error.code == "context_length_exceeded":
        return None
    if error.code == "invalid_encrypted_content" or any(pattern.search(error.message) for pattern in REASONING):
        return "reasoning"
    return next((part for part, pattern in SETTINGS if pattern.search(error.message)), None)


REASONING: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # responses: sealed by another, or for another item; or an item that was never kept, or that stands alone.
        r"encrypted[ _]content\b.{0,300}\b(?:not be|cannot be|failed to be) (?:verified|decrypted|parsed)",
        r"\bitem\b.{0,20}\brs_.{0,200}\b(?:not found|without its required)",
        # messages: a signature that is another's or none, and blocks that are not as they were.
        r"\binvalid\b.{0,20}\bsignature\b.{0,20}\bthinking\b",
        r"\bthinking\.signature\b.{0,20}\brequired",
        r"thinking`? blocks\b.{0,120}\bcannot be modified",
        # gemini: the same of a thought's signature.
        r"\b(?:corrupted|invalid|malformed)\b.{0,20}\bthought[ _]?signature",
        r"\bthought[ _]?signature\b.{0,60}\b(?:not valid|invalid|corrupted|malformed|could not)",
        # chat: servers that have no place for it.
        r"\breasoning_(?:content|details)\b.{0,60}\b(?:unsupported|not (?:supported|permitted|allowed))",
        r"\b(?:unsupported|unexpected|unknown|extra)\b.{0,60}\breasoning_(?:content|details)\b",
    )
)
FORMS: Final[dict[str, RefusedPart]] = {
    # responses: a model that does not reason.
    r"\bencrypted content is not supported\b": "encrypted_reasoning",
    # messages: the form is another model's, or newer than the server.
    r"\bthinking\.type\.enabled\W{1,3}is not supported": "thinking.enabled",
    r"\bthinking\.type\.disabled\W{1,3}is not supported": "thinking.disabled",
    r"\bthinking\b.{1,80}\bbetween_tools\W{1,3}(?:is not supported|found using)": "thinking.between_tools",
    r"\badaptive thinking is not supported": "thinking.adaptive",
    r"\bthinking\b.{1,80}\badaptive\W{1,3}(?:is not supported|found using)": "thinking.adaptive",
}
SETTINGS: Final = tuple((part, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for pattern, part in FORMS.items())
