"""The types of the route table: a route with its operations, and the description of each for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services

Endpoint = Callable[[Services, Exchange], Awaitable[None]]
Schema = dict[str, Any]  # a JSON Schema
BodyType = type[Struct] | Schema  # the schema of a Struct is generated
ErrorCodes = Mapping[int, Mapping[str, str]]  # an example message by status and code


class Parameter(Struct, frozen=True):
    """A value in the path, the query or a header of a request."""

    name: str
    location: Literal["path", "query", "header"]
    description: str
    schema: Schema


class Answer(Struct, frozen=True):
    """The answer with status 200."""

    description: str
    content: dict[str, BodyType]  # by media type
    headers: tuple[str, ...] = ()  # besides `x-request-id`, which every answer has


class _Method(Struct, frozen=True):
    """One method of a path, and the function that answers it."""

    method: str
    path: str  # with its parameters: `/v1/responses/{id}`
    endpoint: Endpoint


class Operation(_Method, frozen=True, kw_only=True):
    """A method of a path with its description. Every operation has the errors of all endpoints besides its own."""

    id: str
    summary: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: BodyType | None = None
    answer: Answer
    errors: ErrorCodes = {}
    has_vendor_errors: bool = False  # errors have the form of the client's dialect, which its vendor documents


class Route(Struct, frozen=True, kw_only=True):
    """The operations of a path, by method."""

    operations: dict[str, Operation]
    is_public: bool = False  # answers without a key


def schema_ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_answer(description: str, body: BodyType, *headers: str) -> Answer:
    return Answer(description, {"application/json": body}, headers)


def path_parameter(name: str, description: str) -> Parameter:
    return Parameter(name, "path", description, {"type": "string", "minLength": 1})


# A parameter of all turns.
LOSSES: Final = Parameter(
    "Antiphon-Losses",
    "header",
    "`strict` refuses a turn that cannot be translated without loss; `warn` reports the losses.",
    {"enum": ["warn", "strict"]},
)
