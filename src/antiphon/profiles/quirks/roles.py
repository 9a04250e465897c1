"""Quirks for roles: the place of system text, and the roles that a server accepts."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.profiles.quirks.rewriting import NoOptions, change_messages, content_as_text, report_dropped_fields
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class SystemToInstructionsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: Move only the leading system messages, or all of them; later ones lose their position.
    move: Literal["leading", "all"] = "leading"


class InstructionsToSystemOptions(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "developer"] = "system"


def system_to_instructions(request: Request, losses: Losses, options: SystemToInstructionsOptions) -> Request:
    """D-1, E-4: append system messages to `instructions`."""
    if not isinstance(request.input, list):
        return request
    instructions = [request.instructions] if request.instructions else []
    other_items: list[ItemParam] = []
    for index, item in enumerate(request.input):
        path = f"input[{index}]"
        match item:
            case MessageParam(role="system") if options.move == "all" or not other_items:
                if other_items:
                    losses.add(path, "the position of a system message", "it is moved to instructions")
                report_dropped_fields(item, path, losses)
                instructions.append(content_as_text(item.content, f"{path}.content", losses, separator="\n\n"))
            case _:
                other_items.append(item)
    if len(other_items) == len(request.input):
        return request
    return replace(
        request, instructions="\n\n".join(filter(None, instructions)) or request.instructions, input=other_items
    )


def instructions_to_system(request: Request, _losses: Losses, options: InstructionsToSystemOptions) -> Request:
    """Send `instructions` as the first message."""
    if not request.instructions:
        return request
    first = MessageParam(role=options.role, content=request.instructions)
    return replace(request, instructions=UNSET, input=[first, *input_items(request)])


def developer_as_system(request: Request, _losses: Losses, _options: NoOptions) -> Request:
    """For servers that do not know the role `developer`."""
    return change_messages(request, lambda _, message: replace(message, role="system"), "developer")


def system_as_developer(request: Request, _losses: Losses, _options: NoOptions) -> Request:
    """For servers that require `developer` in place of `system`."""
    return change_messages(request, lambda _, message: replace(message, role="developer"), "system")
