"""The same talk over one WebSocket: nothing is stored, the connection remembers its newest response."""

import asyncio
import os

from antiphon.client import AsyncClient, output_text


async def main() -> None:
    async with AsyncClient(model=os.environ.get("ANTIPHON_MODEL", "local")) as client, client.connect() as socket:
        first = await socket.create("My name is Ada.", store=False)
        print(output_text(first))
        async with socket.stream("Who am I?", previous_response_id=first.id, store=False) as stream:
            async for piece in stream.texts():
                print(piece, end="", flush=True)
        print()


asyncio.run(main())
