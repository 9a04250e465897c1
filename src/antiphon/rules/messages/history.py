"""The rules of the Messages API for conversations: the order of turns, calls and their results, thoughts.

`blocks` checks single blocks.
"""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import Any, Final

from msgspec import Struct

from antiphon.rules.content import describe_role, type_of
from antiphon.rules.messages.blocks import IN_ASSISTANT, IN_SYSTEM, IN_USER, check_block
from antiphon.rules.messages.members import Members, check_members, refuse
from antiphon.rules.report import Report, as_json


class Turn(Struct):
    """One message with its well-formed blocks, each with its path."""

    path: str
    role: str
    content: Any
    blocks: list[tuple[str, dict[str, Any]]]
    #: Whether all of its blocks are well formed.
    has_only_valid_blocks: bool = True

    def blocks_of_type(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        return [(path, block) for path, block in self.blocks if block["type"] == kind]


def check_history(
    messages: Any,
    thinking_type: str,
    report: Report,
    *,
    must_alternate: bool,
    allows_system_messages: bool,
    hint: str = "",
) -> list[Turn]:
    """Check a conversation; return its turns. `thinking_type` is the type of `thinking`, such as `enabled`."""
    # "messages: at least one message is required".
    if not isinstance(messages, list) or not messages:
        problem = f"`messages` is a list of at least one message{hint}"
        refuse(report, "missing_field", "messages", "at least one message is required, in a list", problem)
        return []
    turns = _check_roles(messages, report, allows_system_messages=allows_system_messages)
    _check_order(turns, report, must_alternate=must_alternate)
    for turn in turns:
        _check_content(turn, report, is_last=turn is turns[-1])
    _check_calls(turns, report)
    _check_final_thoughts(turns, report)
    if thinking_type == "enabled":
        _check_tool_loop_start(turns, report)
    if turns and turns[-1].role == "assistant":
        _check_prefill(turns[-1], thinking_type, report)
    return turns


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content of a message as blocks; a string is one block of text, an empty string none."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = content
    return blocks


# Roles.


def _check_roles(messages: list[Any], report: Report, *, allows_system_messages: bool) -> list[Turn]:
    """Return the messages that have a role and content."""
    roles = ("user", "assistant", "system") if allows_system_messages else ("user", "assistant")
    turns: list[Turn] = []
    for index, message in enumerate(report.walk(messages)):
        path = f"messages.{index}"
        if not check_members(message, path, MESSAGE, report):
            continue
        role = message["role"]
        if role in roles:
            turns.append(Turn(path, role, message["content"], []))
            continue
        # "The Messages API accepts a top-level `system` parameter, not "system" as an input message role", except for
        # newer models.
        report.add(
            "role",
            f"{path}.role",
            f'messages: Unexpected role "{role}". Permitted are {", ".join(roles)}',
            describe_role(role, roles).problem,
            is_certain=role != "system",
            settings=SYSTEM if role == "system" else (),
        )
    return turns


def _check_order(turns: list[Turn], report: Report, *, must_alternate: bool) -> None:
    # "messages: first message must use the "user" role".
    if turns and turns[0].role != "user":
        message = 'messages: first message must use the "user" role'
        report.add("order", turns[0].path, message, "the first message is the user's")
    # "roles must alternate between "user" and "assistant", but found multiple "user" roles in a row": the maker of this
    # API has come to merge such turns, those who serve its models elsewhere have not.
    for before, after in pairwise(turn for turn in turns if turn.role != "system"):
        if must_alternate and before.role == after.role:
            message = (
                'messages: roles must alternate between "user" and "assistant", but found multiple '
                f'"{after.role}" roles in a row'
            )
            problem = f"two messages of the {after.role} follow each other; some servers want the roles to alternate"
            report.add("order", after.path, message, problem, is_certain=False)
    for index, turn in enumerate(turns):
        # "role 'system' must precede an 'assistant' message or end the array"; and it follows the user.
        if turn.role == "system" and (
            index == 0
            or turns[index - 1].role != "user"
            or any(next.role != "assistant" for next in turns[index + 1 : index + 2])
        ):
            server_text = (
                "role 'system' must follow a 'user' message, and precede an 'assistant' message or end the array"
            )
            refuse(report, "order", turn.path, server_text)


# Content.


def _check_content(turn: Turn, report: Report, *, is_last: bool) -> None:
    content, path = turn.content, turn.path
    if not isinstance(content, str | list):
        problem = f"{as_json(content)} is neither a string nor a list"
        refuse(report, "value", f"{path}.content", "Input should be a valid string or list", problem)
        turn.has_only_valid_blocks = False
        return
    # "all messages must have non-empty content except for the optional final assistant message".
    if not content and not (is_last and turn.role == "assistant"):
        server_text = "all messages must have non-empty content except for the optional final assistant message"
        refuse(
            report, "value", path, server_text, "a message has content that is not empty", exact_path=f"{path}.content"
        )
    for index, block in enumerate(report.walk(blocks_of({"content": content}))):
        exact_path = f"{path}.content.{index}"
        if check_block(block, exact_path, BLOCKS_OF_ROLE[turn.role], report):
            turn.blocks.append((exact_path, block))
        else:
            turn.has_only_valid_blocks = False


def _check_prefill(turn: Turn, thinking_type: str, report: Report) -> None:
    # A turn that is already begun cannot be thought about: prefilling is refused where thinking is on.
    if thinking_type in THINKING:
        message = "messages: the conversation cannot end with an assistant message when `thinking` is enabled"
        problem = "with thinking, the last message is not the assistant's"
        report.add("combination", turn.path, message, problem)
    # "final assistant content cannot end with trailing whitespace".
    path, last = turn.blocks[-1] if turn.blocks else ("", {"type": ""})
    if turn.has_only_valid_blocks and last["type"] == "text" and last["text"] != last["text"].rstrip():
        message = "messages: final assistant content cannot end with trailing whitespace"
        report.add("value", path, message, "the last message of the assistant ends with white space")


# Calls and results.


def _check_calls(turns: list[Turn], report: Report) -> None:
    unanswered_calls: dict[str, str] = {}
    caller_path = ""
    ids: set[str] = set()
    for turn in turns:
        if turn.role == "user":
            _check_results(turn, unanswered_calls, caller_path, report)
            unanswered_calls = {}
        elif turn.role == "assistant":
            _report_unanswered(unanswered_calls, caller_path, report)
            caller_path, unanswered_calls = turn.path, {}
            _check_calls_last(turn, report)
            for path, block in turn.blocks_of_type("tool_use"):
                # "`tool_use` ids must be unique", in one turn and over the whole conversation.
                if block["id"] in ids:
                    problem = f"another call already has the id {as_json(block['id'])}"
                    refuse(report, "value", caller_path, "`tool_use` ids must be unique", problem, exact_path=path)
                ids.add(block["id"])
                unanswered_calls[block["id"]] = path
    _report_unanswered(unanswered_calls, caller_path, report)


def _check_calls_last(turn: Turn, report: Report) -> None:
    # What stands between a call and its result separates them: text, or a search of the server's own, after a call gets
    # the same refusal as a call without a result.
    for (path, before), (_, after) in pairwise(turn.blocks):
        if before["type"] == "tool_use" and after["type"] != "tool_use":
            _report_unanswered({before["id"]: path}, turn.path, report)


def _check_results(turn: Turn, unanswered_calls: dict[str, str], caller_path: str, report: Report) -> None:
    answered: set[str] = set()
    for path, block in turn.blocks_of_type("tool_result"):
        id = block["tool_use_id"]
        # "unexpected `tool_use_id` found in `tool_result` blocks": orphans, and results of calls of an earlier turn.
        if id not in unanswered_calls:
            server_text = (
                f"unexpected `tool_use_id` found in `tool_result` blocks: {id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
            problem = f"this result has no call: the message before it does not call {as_json(id)}"
            refuse(report, "orphan_result", path, server_text, problem, settings=ORPHAN_SETTINGS)
        # "each tool_use must have a single result".
        elif id in answered:
            server_text = f"each tool_use must have a single result; found several with id {id}"
            refuse(report, "orphan_result", path, server_text, settings=ORPHAN_SETTINGS)
        answered.add(id)
    # Results come first in their message: one that stands after text counts as none.
    results = takewhile(lambda entry: entry[1]["type"] == "tool_result", turn.blocks)
    first = {block["tool_use_id"] for _, block in results}
    _report_unanswered({id: path for id, path in unanswered_calls.items() if id not in first}, caller_path, report)


def _report_unanswered(unanswered_calls: dict[str, str], caller_path: str, report: Report) -> None:
    # "`tool_use` ids were found without `tool_result` blocks immediately after": all results, in the one message that
    # follows.
    server_text = (
        f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(unanswered_calls)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
    for id, path in unanswered_calls.items():
        problem = f"the message right after it does not begin with a `tool_result` for the call {as_json(id)}"
        refuse(report, "unanswered_call", caller_path, server_text, problem, exact_path=path)


# Thoughts.


def _check_final_thoughts(turns: list[Turn], report: Report) -> None:
    for turn in turns:
        # "The final block in an assistant message cannot be `thinking`": thoughts lead to something.
        if turn.has_only_valid_blocks and turn.blocks and turn.blocks[-1][1]["type"] == "thinking":
            server_text = "The final block in an assistant message cannot be `thinking`."
            refuse(report, "reasoning", turn.path, server_text, exact_path=turn.blocks[-1][0])


def _check_tool_loop_start(turns: list[Turn], report: Report) -> None:
    """Within a loop of tools, the turn that began it starts with thoughts."""
    starts = [
        index for index, turn in enumerate(turns) if turn.role == "user" and not turn.blocks_of_type("tool_result")
    ]
    loop = [turn for turn in turns[starts[-1] if starts else 0 :] if turn.role == "assistant"]
    if not loop or not loop[0].has_only_valid_blocks:
        return
    turn = loop[0]
    kind = type_of(turn.blocks[0][1]) if turn.blocks else ""
    # "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the
    # lastmost set of `tool_use` and `tool_result` blocks)". Adaptive thinking has no such rule.
    if kind not in ("thinking", "redacted_thinking"):
        server_text = (
            f"Expected `thinking` or `redacted_thinking`, but found `{kind}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )
        problem = "with thinking enabled, a message that calls tools begins with its thinking block"
        refuse(
            report,
            "reasoning",
            f"{turn.path}.content.0.type",
            server_text,
            problem,
            exact_path=f"{turn.path}.content.0",
        )


THINKING: Final = ("enabled", "adaptive")
MESSAGE: Final = Members({"role": str, "content": object})
BLOCKS_OF_ROLE: Final = {"user": IN_USER, "assistant": IN_ASSISTANT, "system": IN_SYSTEM}
SYSTEM: Final = ('wire.system = "user"', 'wire.system = "top"')
ORPHAN_SETTINGS: Final = ('wire.orphan_outputs = "text"',)
