"""`GET /v1/usage`: each owner sees its own usage only (C-5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.api.stateful import ALICE, BOB, Lab, lab, lab_on
from tests.running import until

from antiphon import testing
from antiphon.testing import turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with lab_on(request.param) as running:
        yield running


def used(here: Lab, query: str = "", key: str = ALICE) -> dict[str, Any]:
    answer = here.call("GET", f"/v1/usage{query}", key=key)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def test_usage_lists_only_the_requests_of_the_owner(here: Lab) -> None:
    """C-5: tokens by model, of turns that stream and of turns that do not."""
    here.says.append(turn(testing.text("a"), testing.usage(5, 2)))
    day = datetime.now(UTC).date().isoformat()
    here.told("Hi")
    here.streamed("Hi")
    here.told("Hi", model="other-1")
    here.told("Hi", key=BOB)
    here.refused("Hi", model="nobody's")
    response = used(here)
    assert (response["object"], response["by"]) == ("list", "model")
    assert day <= response["until"] <= datetime.now(UTC).date().isoformat()  # it may be midnight
    by_model = {entry["model"]: entry for entry in response["data"]}
    assert (
        by_model["mock-1"]["requests"],
        by_model["mock-1"]["input_tokens"],
        by_model["mock-1"]["output_tokens"],
    ) == (2, 10, 4)
    assert by_model["other-1"]["requests"] == 1
    assert [entry["requests"] for entry in used(here, key=BOB)["data"]] == [1]
    assert [entry["requests"] for entry in used(here, "?by=upstream")["data"]] == [2, 1, 1]
    assert sum(entry["errors"] for entry in used(here, "?by=day")["data"]) == 1
    assert [entry["key"] for entry in used(here, f"?by=key&since={day}&until={response['until']}")["data"]] == ["alice"]
    assert used(here, "?until=2020-01-01")["data"] == []


def test_usage_refuses_invalid_days_groupings_and_keys(here: Lab) -> None:
    answer = here.call("GET", "/v1/usage?since=yesterday")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "since")
    assert here.call("GET", "/v1/usage?by=colour").status_code == 400
    assert here.call("GET", "/v1/usage", key="wrong").status_code == 401


def test_usage_without_store_is_404() -> None:
    with lab("off") as here:
        assert here.call("GET", "/v1/usage").status_code == 404


def test_usage_is_persisted_at_shutdown(tmp_path: Path) -> None:
    """C-5: pending usage is written at shutdown."""
    url = f"sqlite:///{tmp_path}/kept.db"
    with lab(url) as here:
        here.told("Hi")
    with lab(url) as here:
        assert [entry["requests"] for entry in used(here)["data"]] == [1]


def test_usage_counts_a_background_response_once(here: Lab) -> None:
    """C-5: queueing and running a background response are one request."""
    id = here.told("Hi", background=True)["id"]
    until(lambda: here.kept(id)["status"] == "completed")
    until(lambda: bool(used(here)["data"]))
    assert [(entry["requests"], entry["output_tokens"]) for entry in used(here)["data"]] == [(1, 2)]
