"""An agent that is a model: it looks at a folder and tells what is in it, and any client of the gateway can ask it.

antiphon serve --agent agent:listing          (in this folder)
antiphon ask --model listing "What is in src?"
"""

from __future__ import annotations

from pathlib import Path

from antiphon.errors import InvalidValue
from antiphon.producer import Turn, agent

ROOT = Path.cwd()


@agent(model="listing")
async def listing(turn: Turn) -> None:
    words = turn.text.strip(" ?.!").split()
    if not words:
        raise InvalidValue("input: got no words, wanted a question that ends in the name of a folder", param="input")
    async with turn.reasoning() as thought:
        await thought.write(f"The last word of the question is a folder: {words[-1]}.")
    folder = (ROOT / words[-1]).resolve()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() and folder.is_relative_to(ROOT) else []
    await turn.extension("example:look", {"folder": words[-1], "found": len(names)})
    async with turn.message() as out:
        await out.write(f"In {words[-1]} there is ")
        for name in names:
            await out.write(f"{name}, ")
        await out.write("and nothing else." if names else "nothing that I may see.")
    turn.usage(input_tokens=len(words), output_tokens=len(names) + 5)
