"""A conversation over one WebSocket. Nothing is stored: the connection remembers its newest response."""

import asyncio
import os

from antiphon import AsyncClient


async def main() -> None:
    async with AsyncClient(model=os.environ.get("ANTIPHON_MODEL", "local")) as client, client.connect() as socket:
        first = await socket.create("My name is Ada.", store=False)
        print(first.output_text)
        async with socket.stream("Who am I?", previous_response_id=first.id, store=False) as stream:
            async for piece in stream.texts():
                print(piece, end="", flush=True)
        print()


asyncio.run(main())
