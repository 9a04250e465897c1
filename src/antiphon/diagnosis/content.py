"""Content and roles: the words that one dialect has for text, and which of them were taken from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.diagnosis.finding import Findings, as_json
from antiphon.profiles.suggestions import did_you_mean


def lint_role(role: Any, path: str, known: Sequence[str], found: Findings, *settings: str) -> bool:
    """Whether the role is known."""
    if role in known:
        return True
    if role is None:
        found.add("missing_field", path, f"a message has a role: one of {', '.join(known)}")
    else:
        said = f"{as_json(role)} is no role here: wanted is one of {', '.join(known)}{ROLES_ELSEWHERE.get(str(role), '')}"
        found.add("role", path, said, *settings)
    return False


def lint_parts(content: Any, path: str, known: Sequence[str], found: Findings, *settings: str) -> None:
    """The parts of a content, by their types. A string is content too."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        found.add("value", path, f"content is a string or a list of parts, not {as_json(content)}")
        return
    if not content:
        found.add("value", path, "content has no parts; leave the message out, or say something")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        kind = kind if isinstance(kind, str) else None
        if kind in known:
            continue
        place = f"{path}[{at}].type" if isinstance(part, dict) else f"{path}[{at}]"
        if kind in TEXT_WORDS:
            found.add("content_type", place, _mixed_up(kind, known), *settings)
        elif kind is None:
            found.add("discriminator", place, f"a part is an object with a type, not {as_json(part)}")
        else:
            said = f"`{kind}` is no type of part here: wanted is one of {', '.join(known)}{did_you_mean(kind, known)}"
            found.add("discriminator", place, said, *settings)


def _mixed_up(kind: str, known: Sequence[str]) -> str:
    wanted = next((word for word in known if word in TEXT_WORDS), known[0])
    return f"`{kind}` is {TEXT_WORDS[kind]}; here text has the type `{wanted}`"


TEXT_WORDS: Final = {
    "text": "the word of the chat and messages dialects for text",
    "input_text": "the word of the responses dialect for what goes to the model",
    "output_text": "the word of the responses dialect for what the model said",
}
ROLES_ELSEWHERE: Final = {
    "tool": "; `tool` is a role of the chat dialect, where results are messages",
    "function": "; `function` is what older chat servers called `tool`",
    "developer": "; servers that do not know `developer` know `system`",
    "system": "; system text has a field of its own here",
    "assistant": "; who answers is called `model` here",
    "model": "; `model` is a role of the gemini dialect, called `assistant` elsewhere",
}
