"""The sources of all dialects."""

from __future__ import annotations

from typing import Final

from tests.identity import chat, gemini, messages, ollama, responses
from tests.identity.source import Source

from antiphon.dialects.dialect import ServerDialectName

SOURCES: Final[dict[ServerDialectName, Source]] = {
    source.dialect: source for source in (chat.SOURCE, responses.SOURCE, messages.SOURCE, gemini.SOURCE, ollama.SOURCE)
}
