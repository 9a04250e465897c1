"""Judge a body twice: by the strict fake server of its dialect, and by diagnosis; and change bodies at random."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from tests.testing.chat import test_rules as test_chat_rules
from tests.testing.gemini import test_rules as test_gemini_rules
from tests.testing.messages import test_rules as test_messages_rules
from tests.testing.ollama import test_rules as test_ollama_rules
from tests.testing.requests import make_request
from tests.testing.responses import test_rules as test_responses_rules

from antiphon.diagnosis import Finding, lint_body
from antiphon.diagnosis.finding import resolve_server_path
from antiphon.dialects.dialect import ServerDialectName
from antiphon.rules import Report, Violation, chat, gemini, messages, ollama, responses
from antiphon.rules.settings import check_model
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.ollama.server import OllamaBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.script import PlainReply

#: The listed bodies of each dialect: a body that breaks one rule, and the same body without the fault.
LISTED: dict[ServerDialectName, Any] = {
    "chat": test_chat_rules,
    "responses": test_responses_rules,
    "messages": test_messages_rules,
    "gemini": test_gemini_rules,
    "ollama": test_ollama_rules,
}
SERVERS: dict[ServerDialectName, Callable[[Any], PlainReply | None]] = {
    "chat": lambda body: ChatBehavior().find_refusal(make_request(body)),
    "responses": lambda body: ResponsesBehavior().find_refusal(make_request(body)),
    "messages": lambda body: MessagesBehavior().find_refusal(make_request(body, **test_messages_rules.VERSION)),
    "gemini": lambda body: GeminiBehavior().find_refusal(test_gemini_rules.model_request(body)),
    "ollama": lambda body: OllamaBehavior().find_refusal(make_request(body)),
}


class Collected(Report):
    """Collects all violations and suspicions, without bounds."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.suspicions: list[tuple[str, str]] = []

    def receive(self, violation: Violation) -> None:
        self.violations.append(violation)

    def suspect(self, rule: str, path: str, problem: str, *, settings: tuple[str, ...] = ()) -> None:  # noqa: ARG002
        self.suspicions.append((rule, path))


class Refused(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


class Refusing(Report):
    """Raises at the first violation, as strict servers do."""

    def receive(self, violation: Violation) -> None:
        raise Refused(violation)


def check_by_rules(dialect: ServerDialectName, body: dict[str, Any], report: Report) -> None:
    """Check a body in the order of the strict server."""
    match dialect:
        case "chat":
            check_model(body, report)
            chat.check(body, report)
        case "responses":
            check_model(body, report)
            responses.check(body, report)
        case "messages":
            messages.check(body, report)
            messages.check_model(body, report)
        case "gemini":
            gemini.check(body, report)
        case "ollama":
            ollama.check(body, report)
            ollama.check_model(body, report)


def first_violation(dialect: ServerDialectName, body: dict[str, Any]) -> Violation | None:
    try:
        check_by_rules(dialect, body, Refusing())
    except Refused as refused:
        return refused.violation
    return None


def refusal_of(dialect: ServerDialectName, body: Any) -> str | None:
    """The message with which the strict server refuses a body; None if it accepts the body."""
    reply = SERVERS[dialect](body)
    if reply is None:
        return None
    error = json.loads(reply.body)["error"]
    return error if isinstance(error, str) else error["message"]


def findings_of(dialect: ServerDialectName, body: Any) -> list[Finding]:
    return lint_body(json.dumps(body).encode(), dialect)


def path_in_body(dialect: ServerDialectName, path: str, body: dict[str, Any]) -> str:
    return resolve_server_path(path, body)[0] if dialect in ("messages", "gemini") else path


def listed_bodies(dialect: ServerDialectName) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The listed bodies: a name, the body with a fault, and the body without it."""
    module = LISTED[dialect]
    return [(name, module.full(wrong), module.full(right)) for name, (wrong, _, right) in module.RULES.items()]


SMALL_JSON = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -1, 3.5, "", "a", " ", "auto", "user", "text", "object", "c1", "f"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "id", "input", "parts", "properties", "url"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


@st.composite
def changed(draw: st.DrawFn, bodies: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """A body with one or two random changes: a value is replaced, removed, repeated or renamed."""
    body = copy.deepcopy(draw(bodies))
    for _ in range(draw(st.integers(1, 2))):
        places = _places(body)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "repeat", "rename"])):
            case "replace":
                holder[key] = draw(SMALL_JSON)
            case "remove":
                del holder[key]
            case "repeat" if isinstance(holder, list):
                holder.insert(draw(st.integers(0, len(holder))), copy.deepcopy(holder[key]))
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from(["type", "name", "content", "unknown", "id"]))] = holder.pop(key)
            case _:
                holder[key] = [holder[key]]
    return body


def _places(body: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Every member of every object and list in a body, with its holder."""
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [body]
    while waiting:
        holder = waiting.pop()
        members = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        places += [(holder, key) for key, _ in members]
        waiting += [member for _, member in members if isinstance(member, dict | list)]
    return places
