"""Which messages at the beginning are the system prompt (A-6, C-1).

Editors of today send it under a role of its own. Older ones sent it as the first message of the assistant, where a real turn may
stand as well. So such a message is taken for the prompt only if nothing speaks against it: no message has the system's role, it is
text alone, the user's turn follows, and it speaks to a model as prompts do. In doubt it is a turn. A client that knows better says
so in `choices.leadingAssistant`.
"""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.vscode.parts_to_hub import part_kind
from antiphon.dialects.vscode.request_in import ChoicesIn, MessageIn

USER, ASSISTANT, SYSTEM = 1, 2, 3


def system_prompts(messages: list[MessageIn], choices: ChoicesIn) -> list[str]:
    """The texts of the messages at the beginning that are the system prompt, one for each of them."""
    if any(message.role == SYSTEM for message in messages):
        return _of_the_system(messages)
    first = text_if_only_text(messages[0]) if messages[0].role == ASSISTANT else None
    if first is None or choices.leading_assistant == "turn":
        return []
    if choices.leading_assistant == "system" or (_is_followed_by_the_user(messages) and SPEAKS_TO_A_MODEL.match(first)):
        return [first]
    return []


def text_if_only_text(message: MessageIn) -> str | None:
    """All that a message says, if it is nothing but text; marks of the editor's own are no part of it."""
    if isinstance(message.content, str):
        return message.content or None
    texts: list[str] = []
    for part in message.content:
        if isinstance(part, str):
            texts.append(part)
        elif part_kind(part) == "text":
            texts.append(str(part.value))
        elif part_kind(part) != "data" or "/" in str(part.mime_type):
            return None
    return "".join(texts) or None


def _of_the_system(messages: list[MessageIn]) -> list[str]:
    prompts: list[str] = []
    for message in messages:
        text = text_if_only_text(message) if message.role == SYSTEM else None
        if text is None:
            break
        prompts.append(text)
    return prompts


def _is_followed_by_the_user(messages: list[MessageIn]) -> bool:
    return len(messages) > 1 and messages[1].role == USER


# How prompts begin, perhaps behind a heading or the tag that they stand in: they say to a model what it is. "You are right" and
# "You are a genius" are answers. No two ways lead through this, so that no text makes it slow.
SPEAKS_TO_A_MODEL: Final = re.compile(
    r"\s*(?:#[^\n]*\n\s*|<[A-Za-z][\w.:-]*>\s*)*"
    r"(?:You(?: are|'re) (?:now )?(?:[A-Z][\w. -]{0,60}, )?(?:an?|the) (?:[\w'-]+,? ){0,6}?"
    r"(?:AI|LLM|assistant|agent|model|bot|chatbot|programmer|programming|coding|coder|expert|engineer|developer|tutor|specialist)\b"
    r"|Your (?:role|task|job|name) is |Act as |Follow the user's )"
)
