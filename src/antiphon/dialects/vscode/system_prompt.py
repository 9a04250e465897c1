"""Finds the system prompt at the start of an editor's messages (A-6, C-1).

Current editors send it with the system role. Older ones send it as the first assistant message, which may also be a
real turn. Such a message counts as the prompt only if no message has the system role, it has only text, a user turn
follows, and it starts like a prompt. A client can override this with `choices.leadingAssistant`.
"""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.vscode.parts_to_hub import part_kind
from antiphon.dialects.vscode.request_in import ChoicesIn, MessageIn

USER, ASSISTANT, SYSTEM = 1, 2, 3


def system_prompts(messages: list[MessageIn], choices: ChoicesIn) -> list[str]:
    """Return the texts of the leading messages that are the system prompt, one for each message."""
    if any(message.role == SYSTEM for message in messages):
        return _leading_system_texts(messages)
    first = text_if_only_text(messages[0]) if messages[0].role == ASSISTANT else None
    if first is None or choices.leading_assistant == "turn":
        return []
    if choices.leading_assistant == "system" or (_has_user_turn_second(messages) and PROMPT_START.match(first)):
        return [first]
    return []


def text_if_only_text(message: MessageIn) -> str | None:
    """Return the text of a message that has only text, else None. Marks of the editor are ignored."""
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


def _leading_system_texts(messages: list[MessageIn]) -> list[str]:
    prompts: list[str] = []
    for message in messages:
        text = text_if_only_text(message) if message.role == SYSTEM else None
        if text is None:
            break
        prompts.append(text)
    return prompts


def _has_user_turn_second(messages: list[MessageIn]) -> bool:
    return len(messages) > 1 and messages[1].role == USER


# The start of a prompt, optionally after a heading or a tag: it tells a model what it is. "You are right" and
# "You are a genius" are answers. The pattern is unambiguous, so that no text makes matching slow.
PROMPT_START: Final = re.compile(
    r"\s*(?:#[^\n]*\n\s*|<[A-Za-z][\w.:-]*>\s*)*"
    r"(?:You(?: are|'re) (?:now )?(?:[A-Z][\w. -]{0,60}, )?(?:an?|the) (?:[\w'-]+,? ){0,6}?"
    r"(?:AI|LLM|assistant|agent|model|bot|chatbot|programmer|programming|coding|coder|expert|engineer|developer|tutor|specialist)\b"
    r"|Your (?:role|task|job|name) is |Act as |Follow the user's )"
)
