"""What most gateways in Python look like: FastAPI, pydantic models in and out, httpx, one `yield` for each event.

Here to be measured against, in an environment of its own (`.perf/naive`). It does the happy path and nothing else: no keys, no
policy, no losses, no limits.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx  # type: ignore[import-not-found]
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
        return StreamingResponse(_events(translation, headers), media_type="text/event-stream")
    answer = await app.state.client.post(UPSTREAM, json=translation.chat_request(), headers=headers)
    answer.raise_for_status()
    return translation.whole(answer.content)


async def _events(translation: Translation, headers: dict[str, str]) -> AsyncIterator[str]:
    for event in translation.begin():
        yield event
    async with app.state.client.stream("POST", UPSTREAM, json=translation.chat_request(), headers=headers) as answer:
        async for line in answer.aiter_lines():
            for event in translation.feed(line):
                yield event


app = FastAPI(lifespan=lifespan)
app.add_api_route("/v1/responses", create_response, methods=["POST"], response_model=ResponseObject)
