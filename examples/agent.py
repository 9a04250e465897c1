"""An agent that is a model: it lists the files of a folder. Any client of the gateway can call it.

antiphon serve --agent agent:listing          (in this folder)
antiphon ask --model listing "What is in src?"
"""

from __future__ import annotations

from pathlib import Path

from antiphon import InvalidValue, Turn, agent

ROOT = Path.cwd()


@agent(model="listing")
async def listing(turn: Turn) -> None:
    words = turn.text.strip(" ?.!").split()
    if not words:
        raise InvalidValue(
            "input: expected a question that ends with the name of a folder, got no words", param="input"
        )
    async with turn.reasoning() as reasoning:
        await reasoning.write(f"The last word of the question is a folder: {words[-1]}.")
    folder = (ROOT / words[-1]).resolve()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() and folder.is_relative_to(ROOT) else []
    await turn.extension("example:look", {"folder": words[-1], "found": len(names)})
    async with turn.message() as message:
        await message.write(f"{words[-1]} contains: ")
        for name in names:
            await message.write(f"{name}, ")
        await message.write("and nothing else." if names else "nothing that this agent may read.")
    turn.usage(input_tokens=len(words), output_tokens=len(names) + 5)
