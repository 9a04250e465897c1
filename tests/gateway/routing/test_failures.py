"""Each failure has one kind, by what it means."""

from __future__ import annotations

import pytest

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import AnswerTooLarge, ApiError, ClientFault, NoAnswer, StorageUnavailable, UpstreamFault
from antiphon.gateway.routing.failures import FailureKind, classify_failure, model_refusal


@pytest.mark.parametrize("dialect", SERVER_DIALECTS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "request"),
        (401, "credentials"),
        (402, "credentials"),
        (403, "credentials"),
        (413, "request"),
        (422, "request"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "server"),
        (504, "server"),
        (529, "server"),
    ],
)
def test_status_has_the_same_kind_in_every_dialect(dialect: str, status: int, kind: FailureKind) -> None:
    body = b'{"error":{"message":"no","type":"t","code":null}}'
    error = SERVER_DIALECTS[dialect].error_to_hub(status, {}, body)  # type: ignore[index]
    assert classify_failure(error) == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UpstreamFault("refused", code="upstream_unavailable"), "connection"),
        (NoAnswer("closed"), "connection"),
        (UpstreamFault("cut", code="upstream_disconnected"), "server"),
        (UpstreamFault("slow", code="upstream_timeout", status=504), "server"),
        (ClientFault("unknown model", type="not_found", code="model_not_found"), "request"),
        (ClientFault("too long", code="context_length_exceeded"), "context_length"),
        (ClientFault("no", code="content_policy_violation"), "refusal"),
        (ClientFault("Your request was rejected by our safety system."), "refusal"),
        (ClientFault("The response was filtered due to Azure's content management policy"), "refusal"),
        (ClientFault("Unknown parameter: 'content filter'"), "request"),
        (ClientFault("flagged as potentially violating our usage policy", code="invalid_prompt"), "refusal"),
        (ClientFault("we've limited access to this content for safety reasons.", code="invalid_prompt"), "refusal"),
        (ClientFault("Invalid prompt: messages must have a role", code="invalid_prompt"), "request"),
        (AnswerTooLarge("large"), "gateway"),
        (model_refusal(), "refusal"),
        (StorageUnavailable("full"), "gateway"),
        (ApiError("bug"), "gateway"),
    ],
)
def test_error_has_its_kind(error: ApiError, kind: FailureKind) -> None:
    assert classify_failure(error) == kind
