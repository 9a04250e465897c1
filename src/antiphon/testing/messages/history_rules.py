"""The rules of the Messages API for conversations: the order of turns, calls without results, foreign thoughts.

`block_rules` checks single blocks.
"""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import Any, Final

from antiphon.testing.messages.block_rules import (
    IN_ASSISTANT,
    IN_SYSTEM,
    IN_USER,
    Members,
    check_block,
    check_members,
    kind_of,
)
from antiphon.testing.messages.errors import MessagesRequestRefused
from antiphon.testing.messages.issued_thoughts import IssuedThoughts


def check_history(
    messages: Any, thinking: str, thoughts: IssuedThoughts, *, alternating: bool = True, system_messages: bool = False
) -> None:
    """`thinking` is the type of the request's setting: `enabled`, `adaptive`, or anything else where it is off."""
    # "messages: at least one message is required".
    if not isinstance(messages, list) or not messages:
        raise MessagesRequestRefused("messages: at least one message is required, in a list")
    roles = ("user", "assistant", "system") if system_messages else ("user", "assistant")
    for at, message in enumerate(messages):
        _check_role(message, f"messages.{at}", roles)
    _check_order([message["role"] for message in messages], alternating=alternating)
    for at, message in enumerate(messages):
        _check_content(message, f"messages.{at}", is_last=at == len(messages) - 1)
    _check_calls(messages)
    _check_thoughts(messages, thoughts)
    if thinking == "enabled":
        _check_loop(messages)
    if messages[-1]["role"] == "assistant":
        _check_prefill(messages[-1], thinking)


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The content of a message; a string is one block of text, an empty one none."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = content
    return blocks


# Roles.


def _check_role(message: Any, path: str, roles: tuple[str, ...]) -> None:
    check_members(message, path, MESSAGE)
    role = message["role"]
    # "The Messages API accepts a top-level `system` parameter, not "system" as an input message role", except for newer
    # models.
    if role not in roles:
        raise MessagesRequestRefused(f'messages: Unexpected role "{role}". Permitted are {", ".join(roles)}')


def _check_order(roles: list[str], *, alternating: bool) -> None:
    # "messages: first message must use the "user" role".
    if roles[0] != "user":
        raise MessagesRequestRefused('messages: first message must use the "user" role')
    turn_roles = [role for role in roles if role != "system"]
    # "roles must alternate between "user" and "assistant", but found multiple "user" roles in a row": the maker of this
    # API has come to merge such turns, those who serve its models elsewhere have not.
    for before, after in pairwise(turn_roles):
        if alternating and before == after:
            raise MessagesRequestRefused(
                f'messages: roles must alternate between "user" and "assistant", but found multiple "{after}" roles '
                "in a row"
            )
    for at, role in enumerate(roles):
        # "role 'system' must precede an 'assistant' message or end the array"; and what it follows is the user.
        if role == "system" and (roles[at - 1] != "user" or roles[at + 1 : at + 2] not in ([], ["assistant"])):
            raise MessagesRequestRefused(
                f"messages.{at}: role 'system' must follow a 'user' message, and precede an 'assistant' message or "
                "end the array"
            )


# Content.


def _check_content(message: dict[str, Any], path: str, *, is_last: bool) -> None:
    content, role = message["content"], message["role"]
    if not isinstance(content, str | list):
        raise MessagesRequestRefused(f"{path}.content: Input should be a valid string or list")
    # "all messages must have non-empty content except for the optional final assistant message".
    if not content and not (is_last and role == "assistant"):
        raise MessagesRequestRefused(
            f"{path}: all messages must have non-empty content except for the optional final assistant message"
        )
    for at, block in enumerate(blocks_of(message)):
        check_block(block, f"{path}.content.{at}", BLOCKS_OF_ROLE[role])


def _check_prefill(message: dict[str, Any], thinking: str) -> None:
    # A turn that is already begun cannot be thought about: prefilling is refused where thinking is on.
    if thinking in THINKING:
        raise MessagesRequestRefused(
            "messages: the conversation cannot end with an assistant message when `thinking` is enabled"
        )
    last = blocks_of(message)[-1:]
    # "final assistant content cannot end with trailing whitespace".
    if last and last[0]["type"] == "text" and last[0]["text"] != last[0]["text"].rstrip():
        raise MessagesRequestRefused("messages: final assistant content cannot end with trailing whitespace")


# Calls and results.


def _check_calls(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    caller = ""
    ids: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "user":
            _check_results(blocks_of(message), f"messages.{at}", waiting, caller)
            waiting = []
        elif message["role"] == "assistant":
            _check_answered(waiting, caller)
            caller = f"messages.{at}"
            waiting = [block["id"] for block in blocks_of(message) if block["type"] == "tool_use"]
            _check_calls_last(blocks_of(message), caller)
            # "`tool_use` ids must be unique", in one turn and over the whole conversation.
            if len({*ids, *waiting}) != len(ids) + len(waiting):
                raise MessagesRequestRefused(f"{caller}: `tool_use` ids must be unique")
            ids.update(waiting)
    _check_answered(waiting, caller)


def _check_calls_last(blocks: list[dict[str, Any]], caller: str) -> None:
    # What stands between a call and its result separates them: text, or a search of the server's own, after a call gets
    # the same refusal as a call without a result.
    for before, after in pairwise(blocks):
        if before["type"] == "tool_use" and after["type"] != "tool_use":
            _check_answered([before["id"]], caller)


def _check_results(blocks: list[dict[str, Any]], path: str, waiting: list[str], caller: str) -> None:
    answered: set[str] = set()
    for at, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        id = block["tool_use_id"]
        # "unexpected `tool_use_id` found in `tool_result` blocks": orphans, and results of calls of an earlier turn.
        if id not in waiting:
            raise MessagesRequestRefused(
                f"{path}.content.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        # "each tool_use must have a single result".
        if id in answered:
            raise MessagesRequestRefused(
                f"{path}.content.{at}: each tool_use must have a single result; found several with id {id}"
            )
        answered.add(id)
    # Results come first in their message: one that stands after text counts as none.
    first = {block["tool_use_id"] for block in takewhile(lambda block: block["type"] == "tool_result", blocks)}
    _check_answered([id for id in waiting if id not in first], caller)


def _check_answered(waiting: list[str], caller: str) -> None:
    # "`tool_use` ids were found without `tool_result` blocks immediately after": all results, in the one message that
    # follows.
    if waiting:
        raise MessagesRequestRefused(
            f"{caller}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(waiting)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )


# Thoughts.


def _check_thoughts(messages: list[dict[str, Any]], thoughts: IssuedThoughts) -> None:
    for at, message in enumerate(messages):
        blocks = blocks_of(message)
        for number, block in enumerate(blocks):
            path = f"messages.{at}.content.{number}"
            # "Invalid `signature` in `thinking` block": thoughts that were changed, made up, or given by another
            # server.
            if block["type"] == "thinking" and not thoughts.knows(block["thinking"], block["signature"]):
                raise MessagesRequestRefused(f"{path}: Invalid `signature` in `thinking` block")
            if block["type"] == "redacted_thinking" and not thoughts.knows_sealed(block["data"]):
                raise MessagesRequestRefused(f"{path}: Invalid `data` in `redacted_thinking` block")
        # "The final block in an assistant message cannot be `thinking`": thoughts lead to something.
        if blocks and blocks[-1]["type"] == "thinking":
            raise MessagesRequestRefused(
                f"messages.{at}: The final block in an assistant message cannot be `thinking`."
            )


def _check_loop(messages: list[dict[str, Any]]) -> None:
    """Within a loop of tools, the turn that began it starts with thoughts."""
    start = max(at for at, message in enumerate(messages) if message["role"] == "user" and not _has_results(message))
    for at, message in enumerate(messages[start:], start):
        if message["role"] == "assistant":
            kind = kind_of(blocks_of(message)[0]) if message["content"] else ""
            # "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the
            # lastmost set of `tool_use` and `tool_result` blocks)". Adaptive thinking has no such rule.
            if kind not in ("thinking", "redacted_thinking"):
                raise MessagesRequestRefused(
                    f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. "
                    "When `thinking` is enabled, a final `assistant` message must start with a thinking block."
                )
            return


def _has_results(message: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in blocks_of(message))


THINKING: Final = ("enabled", "adaptive")
MESSAGE: Final = Members({"role": str, "content": object})
BLOCKS_OF_ROLE: Final = {"user": IN_USER, "assistant": IN_ASSISTANT, "system": IN_SYSTEM}
