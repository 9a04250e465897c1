"""Reads a response: its text, its function calls, and its output as input of the next turn."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.protocol import codec
from antiphon.protocol.content import OutputText
from antiphon.protocol.items import FunctionCall, Item, ItemParam, Message
from antiphon.protocol.response import Response


def output_text(response: Response) -> str:
    """The text of all messages, without reasoning and refusals."""
    messages = [item for item in response.output if isinstance(item, Message)]
    return "".join(part.text for message in messages for part in message.content if isinstance(part, OutputText))


def function_calls(response: Response) -> list[FunctionCall]:
    """The function calls in the output."""
    return [item for item in response.output if isinstance(item, FunctionCall)]


def as_input(items: Iterable[Item]) -> list[ItemParam]:
    """Output items as input of the next turn, for servers that store nothing (ITEM-6)."""
    return [codec.decode_item_param(codec.encode(item)) for item in items]
