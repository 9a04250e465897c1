"""A typical Python gateway for comparison: FastAPI, pydantic models, httpx, one `yield` per event.

It runs in its own environment (`.perf/naive`) and supports only requests that succeed: no keys, policy or limits.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx  # type: ignore[import-not-found, unused-ignore]
from bench.naive.shapes import CreateResponse, ResponseObject
from bench.naive.translation import Translation
from fastapi import FastAPI  # type: ignore[import-not-found]
from fastapi.responses import StreamingResponse  # type: ignore[import-not-found]

UPSTREAM = os.environ["UPSTREAM"]


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2000)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        app.state.client = client
        yield


async def create_response(request: CreateResponse) -> Any:
    translation = Translation(request)
    headers = {"authorization": "Bearer unused"}
    if request.stream:
        return StreamingResponse(_stream_events(translation, headers), media_type="text/event-stream")
    upstream_response = await app.state.client.post(UPSTREAM, json=translation.chat_request(), headers=headers)
    upstream_response.raise_for_status()
    return translation.translate_completion(upstream_response.content)


async def _stream_events(translation: Translation, headers: dict[str, str]) -> AsyncIterator[str]:
    for event in translation.start():
        yield event
    async with app.state.client.stream(
        "POST", UPSTREAM, json=translation.chat_request(), headers=headers
    ) as upstream_response:
        async for line in upstream_response.aiter_lines():
            for event in translation.feed(line):
                yield event


app = FastAPI(lifespan=lifespan)
app.add_api_route("/v1/responses", create_response, methods=["POST"], response_model=ResponseObject)
