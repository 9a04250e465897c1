"""Exceptions that reach a client: five types, each with its status, and whose fault each is (B-6, ERR-1, ERR-2)."""

from __future__ import annotations

import pickle
from typing import get_args

import pytest

from antiphon.errors import (
    STATUS_OF_TYPE,
    AntiphonError,
    ApiError,
    ClientFault,
    ErrorType,
    InvalidJson,
    InvalidTransition,
    InvalidUnicode,
    InvalidValue,
    JsonTooDeep,
    MissingField,
    OrphanToolOutput,
    ProfileError,
    UnsupportedParameter,
    UpstreamFault,
)


@pytest.mark.parametrize(
    ("type", "status"),
    [
        ("invalid_request", 400),
        ("not_found", 404),
        ("too_many_requests", 429),
        ("server_error", 500),
        ("model_error", 500),
    ],
)
def test_error_type_has_its_status(type: ErrorType, status: int) -> None:
    """B-6, ERR-2."""
    assert ApiError("m", type=type).status == status
    assert UpstreamFault("m", type=type).status == (502 if type == "server_error" else status)


def test_error_types_are_five() -> None:
    """B-6."""
    assert set(get_args(ErrorType)) == set(STATUS_OF_TYPE)
    assert len(STATUS_OF_TYPE) == 5


@pytest.mark.parametrize(
    ("fault", "type", "code", "status"),
    [
        (ApiError, "server_error", "internal_error", 500),
        (ClientFault, "invalid_request", "invalid_value", 400),
        (InvalidJson, "invalid_request", "invalid_json", 400),
        (JsonTooDeep, "invalid_request", "json_too_deep", 400),
        (InvalidUnicode, "invalid_request", "invalid_unicode", 400),
        (InvalidValue, "invalid_request", "invalid_value", 400),
        (MissingField, "invalid_request", "missing_field", 400),
        (UnsupportedParameter, "invalid_request", "unsupported_parameter", 400),
        (OrphanToolOutput, "invalid_request", "orphan_tool_output", 400),
        (UpstreamFault, "server_error", "upstream_error", 502),
    ],
)
def test_fault_has_its_type_code_and_status(fault: type[ApiError], type: str, code: str, status: int) -> None:
    """ERR-1, ERR-2."""
    error = fault("what happened")
    assert (error.type, error.code, error.status) == (type, code, status)
    assert (error.message, str(error), error.param, error.retry_after) == ("what happened", "what happened", None, None)


def test_explicit_error_fields_override_the_defaults() -> None:
    error = UpstreamFault(
        "m", type="too_many_requests", code="rate_limit_exceeded", param="model", status=418, retry_after=2.5
    )
    assert (error.type, error.code, error.param, error.status, error.retry_after) == (
        "too_many_requests",
        "rate_limit_exceeded",
        "model",
        418,
        2.5,
    )


def test_error_is_picklable() -> None:
    error = pickle.loads(pickle.dumps(UpstreamFault("m", code="upstream_timeout", status=504)))
    assert (type(error), error.code, error.status, error.message) == (UpstreamFault, "upstream_timeout", 504, "m")


@pytest.mark.parametrize("ours", [InvalidTransition, ProfileError])
def test_internal_exceptions_are_no_api_errors(ours: type[AntiphonError]) -> None:
    assert issubclass(ours, AntiphonError)
    assert not issubclass(ours, ApiError)
