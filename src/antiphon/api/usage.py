"""`GET /v1/usage`: the usage of the owner of a key, summed by model, upstream or day (C-5)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from antiphon.api.operation import Schema
from antiphon.api.stored_responses import require_store
from antiphon.errors import ClientFault
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.http.query_parameters import QueryParameters
from antiphon.ops.services import Services
from antiphon.store.usage import COUNTER_NAMES
from antiphon.store.usage_sums import FIRST_DAY, GROUPINGS, sum_usage

DEFAULT_DAYS: Final = 30


async def show_usage(services: Services, exchange: Exchange) -> None:
    """Shows the usage of the caller only."""
    store = require_store(services)
    query = QueryParameters(exchange, {"by", "since", "until"})
    grouping = query.one_of("by", tuple(GROUPINGS), "model")
    until = _parse_day(query, "until") or datetime.fromtimestamp(services.stamps.now(), UTC).date()
    since = _parse_day(query, "since") or until - timedelta(days=DEFAULT_DAYS - 1)
    assert services.usage is not None  # set if there is a store
    await services.usage.flush()  # includes the counts of this process
    rows = await store.get_usage(since=(since - FIRST_DAY).days, until=(until - FIRST_DAY).days, owner=exchange.owner)
    data = [_render_entry(grouping, name, counts) for name, counts in sum_usage(rows, grouping).items()]
    body = {"object": "list", "by": grouping, "since": since.isoformat(), "until": until.isoformat(), "data": data}
    await exchange.respond(200, [JSON], msgspec.json.encode(body))


def _render_entry(grouping: str, name: str, counts: list[int]) -> dict[str, Any]:
    return {"object": "usage", grouping: name, **dict(zip(COUNTER_NAMES, counts, strict=True))}


def _parse_day(query: QueryParameters, name: str) -> date | None:
    text = query.text(name)
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise ClientFault(f"{name}: expected a day such as 2026-01-31, got {text[:50]!r}", param=name) from None


DAY_SCHEMA: Final[Schema] = {"type": "string", "format": "date"}
USAGE_SCHEMA: Final[Schema] = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "by": {"enum": list(GROUPINGS)},
        "since": DAY_SCHEMA,
        "until": DAY_SCHEMA,
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "object": {"const": "usage"},
                    **{grouping: {"type": "string"} for grouping in GROUPINGS},
                    **{name: {"type": "integer", "minimum": 0} for name in COUNTER_NAMES},
                },
                "required": ["object", *COUNTER_NAMES],
            },
        },
    },
    "required": ["object", "by", "since", "until", "data"],
}
