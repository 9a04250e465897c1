"""The rules of gemini servers. `check` reports what strict servers refuse in a body.

Paths are in the spelling of these servers: `contents[0].parts[0].inline_data`.
"""

from antiphon.rules.gemini.request import GeminiOptions, check, check_request, read_request

__all__ = ["GeminiOptions", "check", "check_request", "read_request"]
