"""Check roles and the types of content parts, and recognise those of another dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.diagnosis.finding import Findings
from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules.report import as_json


def lint_role(role: Any, path: str, allowed: Sequence[str], findings: Findings, *settings: str) -> bool:
    """Report a role that is not allowed; return whether it is allowed."""
    if role in allowed:
        return True
    if role is None:
        findings.keep("missing_field", path, f"a message has a role: one of {', '.join(allowed)}")
    else:
        hint = ROLES_ELSEWHERE.get(str(role), "")
        problem = f"{as_json(role)} is no role here: wanted is one of {', '.join(allowed)}{hint}"
        findings.keep("role", path, problem, *settings)
    return False


def lint_parts(content: Any, path: str, allowed: Sequence[str], findings: Findings, *settings: str) -> None:
    """Check the types of the parts of a content. A string is valid content too."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        findings.keep("value", path, f"content is a string or a list of parts, not {as_json(content)}")
        return
    if not content:
        findings.keep("value", path, "content has no parts; leave the message out, or say something")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        kind = kind if isinstance(kind, str) else None
        if kind in allowed:
            continue
        place = f"{path}[{at}].type" if isinstance(part, dict) else f"{path}[{at}]"
        if kind in TEXT_TYPES:
            findings.keep("content_type", place, _describe_foreign_type(kind, allowed), *settings)
        elif kind is None:
            findings.keep("discriminator", place, f"a part is an object with a type, not {as_json(part)}")
        else:
            problem = (
                f"`{kind}` is no type of part here: wanted is one of {', '.join(allowed)}{did_you_mean(kind, allowed)}"
            )
            findings.keep("discriminator", place, problem, *settings)


def _describe_foreign_type(kind: str, allowed: Sequence[str]) -> str:
    wanted = next((word for word in allowed if word in TEXT_TYPES), allowed[0])
    return f"`{kind}` is {TEXT_TYPES[kind]}; here text has the type `{wanted}`"


TEXT_TYPES: Final = {
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
