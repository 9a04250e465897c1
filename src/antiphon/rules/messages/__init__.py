"""The rules of the Messages API. `check` reports what strict servers refuse in a body.

Paths are in the spelling of these servers, with the type of a block inside: `messages.1.content.0.text.detail`.
"""

from antiphon.rules.messages.request import BETA_FIELDS, FIELDS, MessagesOptions, check, check_model

__all__ = ["BETA_FIELDS", "FIELDS", "MessagesOptions", "check", "check_model"]
