"""Diagnosis and the strict fake servers agree: they use the same rules.

Server state is no rule: stored responses, and signatures and encrypted reasoning that a server issued.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.diagnosis.test_lint import WRONG
from tests.generate import chat_bodies
from tests.generate.conversations import requests
from tests.rules.judging import (
    changed,
    findings_of,
    first_violation,
    listed_bodies,
    path_in_body,
    refusal_of,
)

from antiphon.diagnosis.finding import paths_overlap
from antiphon.dialects import chat, gemini, messages, ollama, responses
from antiphon.dialects.dialect import ServerDialectName
from antiphon.errors import ApiError

DIALECTS = get_args(ServerDialectName)
WRITERS: dict[ServerDialectName, Any] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
    "ollama": ollama,
}
STATE = re.compile(
    r"previous response .* not found|nothing is stored|encrypted content .* could not be verified"
    r"|Invalid `(?:signature|data)` in `|Corrupted thought signature",
    re.DOTALL,
)
BODIES = [
    pytest.param(dialect, body, id=f"{dialect}-{name}-{kind}")
    for dialect in DIALECTS
    for name, wrong, right in listed_bodies(dialect)
    for kind, body in (("wrong", wrong), ("right", right))
]
BODIES += [pytest.param(dialect, body, id=f"{dialect}-{name}") for name, (dialect, body, _) in WRONG.items()]


def agree(dialect: ServerDialectName, body: dict[str, Any]) -> None:
    """Assert that the strict server and diagnosis judge a body alike."""
    message, violation, findings = refusal_of(dialect, body), first_violation(dialect, body), findings_of(dialect, body)
    if violation is not None:
        assert message is not None, violation
        assert STATE.search(message) or violation.message in message
        place = path_in_body(dialect, violation.path, body)
        assert any(paths_overlap(place, finding.path) for finding in findings), (place, findings)
    elif message is not None and not STATE.search(message):
        # The responses server also refuses what the specification's schema does not allow.
        assert dialect == "responses", message
        assert any(finding.certain for finding in findings)
    elif message is None:
        assert [finding for finding in findings if finding.certain] == []


@pytest.mark.parametrize(("dialect", "body"), BODIES)
def test_server_and_diagnosis_agree_on_listed_bodies(dialect: ServerDialectName, body: dict[str, Any]) -> None:
    agree(dialect, body)


def written(dialect: ServerDialectName) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies that the gateway writes."""

    def write(request: Any) -> Any:
        try:
            return json.loads(WRITERS[dialect].request_from_hub(replace(request, model="m"))[0])
        except ApiError:
            return None

    bodies = requests().map(write).filter(lambda body: body is not None)
    return bodies | chat_bodies.bodies() if dialect == "chat" else bodies


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_server_and_diagnosis_agree_on_generated_bodies(dialect: ServerDialectName, data: st.DataObject) -> None:
    agree(dialect, data.draw(written(dialect)))


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_server_and_diagnosis_agree_on_changed_bodies(dialect: ServerDialectName, data: st.DataObject) -> None:
    listed = st.sampled_from([body for _, *bodies in listed_bodies(dialect) for body in bodies])
    agree(dialect, data.draw(changed(listed | written(dialect))))
