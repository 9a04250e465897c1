"""The rules of the Messages API for fields, settings and their combinations; the other modules have the rest.

A request without violations is accepted by all such servers. The comment of each rule names what it copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules.content import type_of
from antiphon.rules.messages.blocks import IN_SYSTEM, check_block, check_cache_control
from antiphon.rules.messages.history import THINKING, Turn, check_history
from antiphon.rules.messages.members import Members, check_members, refuse
from antiphon.rules.messages.models import ModelRules, check_effort, check_type, find_model_rules
from antiphon.rules.messages.schemas import check_enforced_schema
from antiphon.rules.messages.tools import check_choice, check_tools
from antiphon.rules.report import Report, as_json
from antiphon.rules.settings import MAX_UNKNOWN_FIELDS, Range


class MessagesOptions(Struct, frozen=True, kw_only=True):
    """The rules that not all servers and versions have."""

    #: Whether two turns of one role in a row are refused.
    alternating: bool = True
    #: Whether its models know the role `system` in the middle of a conversation.
    system_messages: bool = False
    #: The types of `thinking` that all its models accept; None: it depends on the name of the model.
    thinking: tuple[str, ...] | None = None


def check(
    body: dict[str, Any],
    report: Report,
    options: MessagesOptions = MessagesOptions(),  # noqa: B008
    *,
    is_newest: bool = False,
    is_count: bool = False,
    betas: str = "",
) -> None:
    """Check a body, except an empty model.

    `is_newest`: the request has the newest version of the API. `is_count`: its tokens are counted. `betas`: the header
    that names the betas.
    """
    for name in ("model", "messages") if is_count else ("model", "max_tokens", "messages"):
        # "max_tokens: Field required": there is no default for it.
        if name not in body:
            refuse(report, "missing_field", name, "Field required", f"`{name}` is required")
    # The newest version has no such settings: even their usual values are "Extra inputs".
    fields = COUNTED_FIELDS if is_count else FIELDS
    _check_fields(body, fields - SAMPLING if is_newest else fields, betas, report)
    _check_settings(body, report)
    model = find_model_rules(body.get("model"))
    if options.thinking is not None:
        model = replace(model, types=options.thinking)
    _check_thinking(body, model, report)
    tools = body.get("tools")
    names = set() if tools is None else check_tools(tools, report)
    if body.get("tool_choice") is not None:
        check_choice(body["tool_choice"], tools, names, report, excludes_force=_excludes_force(body, model))
    _check_output(body, model, report)
    system = _check_system(body.get("system"), report)
    turns = check_history(
        body.get("messages"),
        type_of(body.get("thinking")),
        report,
        must_alternate=options.alternating,
        allows_system_messages=options.system_messages,
        hint="; `input` is the field of the responses dialect" if "input" in body else "",
    )
    _check_cache(body, system, turns, report)
    if is_newest:
        _check_citations(turns, report)


def check_model(body: dict[str, Any], report: Report) -> None:
    if not isinstance(body.get("model"), str) or not body["model"]:
        server_text = "String should have at least 1 character"
        refuse(report, "missing_field", "model", server_text, "a request names its model")


def _check_fields(body: dict[str, Any], fields: frozenset[str], betas: str, report: Report) -> None:
    # "context_management: Extra inputs are not permitted": unknown fields, and those of a beta that the header does not
    # name.
    for name in body:
        if name in BETA_FIELDS and BETA_FIELDS[name] not in betas:
            problem = f"this field needs a beta header that names `{BETA_FIELDS[name]}…`"
            refuse(report, "unknown_field", name, "Extra inputs are not permitted", problem, is_certain=False)
    unknown = (name for name in body if name not in fields and name not in BETA_FIELDS)
    for name in islice(unknown, MAX_UNKNOWN_FIELDS):
        problem = f"the dialect has no such field{did_you_mean(name, fields)}"
        refuse(report, "unknown_field", name, "Extra inputs are not permitted", problem)


# Settings.


def _check_settings(body: dict[str, Any], report: Report) -> None:
    for name, expected in SETTINGS.items():
        if name not in body:
            continue
        value = body[name]
        # Null is no number and no string: only what the reference calls optional may be null.
        if isinstance(expected, Range):
            _check_number(name, value, expected, report)
        elif isinstance(expected, tuple):
            if value not in expected:
                server_text = f"Input should be one of {', '.join(map(repr, expected))}"
                refuse(
                    report,
                    "value",
                    name,
                    server_text,
                    f"{as_json(value)} is not one of {', '.join(map(str, expected))}",
                )
        elif not isinstance(value, expected):
            server_text = f"Input should be a valid {expected.__name__}"
            refuse(report, "value", name, server_text, f"{as_json(value)} is not a {expected.__name__}")
    # "`temperature` and `top_p` cannot both be specified for this model."
    if "temperature" in body and "top_p" in body:
        message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        problem, settings = "newer models take `temperature` or `top_p`, not both", ("wire.both_samplings = false",)
        report.add("combination", "top_p", message, problem, is_certain=False, settings=settings)
    _check_stops(body.get("stop_sequences"), report)
    if "metadata" in body and check_members(body["metadata"], "metadata", METADATA, report):
        _check_user(body["metadata"].get("user_id"), report)


def _check_number(name: str, value: Any, expected: Range, report: Report) -> None:
    if not expected.has_type_of(value):
        kind = "number" if expected.allows_fraction else "integer"
        refuse(report, "value", name, f"Input should be a valid {kind}", f"{as_json(value)} is not a valid {kind}")
    # "temperature: range: 0..1", "max_tokens: must be greater than or equal to 1".
    elif not expected.contains(value):
        server_text = f"Input should be within {expected.minimum} and {expected.maximum}, not {value}"
        refuse(
            report,
            "value",
            name,
            server_text,
            f"{as_json(value)} is not between {expected.minimum} and {expected.maximum}",
        )


def _check_stops(stops: Any, report: Report) -> None:
    # "stop_sequences: each stop sequence must contain non-whitespace".
    for index, stop in enumerate(report.walk(stops if isinstance(stops, list) else ())):
        if not isinstance(stop, str) or not stop.strip():
            server_text = "each stop sequence must be a string with non-whitespace in it"
            refuse(report, "value", f"stop_sequences.{index}", server_text)


def _check_user(user: Any, report: Report) -> None:
    # One member of `metadata` is known; free pairs of other APIs are "metadata.key: Extra inputs are not permitted".
    if user is not None and (not isinstance(user, str) or len(user) > 512):
        refuse(report, "value", "metadata.user_id", "Input should be a string of at most 512 characters")


def _check_system(system: Any, report: Report) -> list[tuple[str, dict[str, Any]]]:
    """Check the system text; return its well-formed blocks, each with its path."""
    if system is None or isinstance(system, str):
        return []
    if not isinstance(system, list):
        problem = f"{as_json(system)} is neither a string nor a list"
        refuse(report, "value", "system", "Input should be a valid string or list", problem)
        return []
    blocks = [(f"system.{index}", block) for index, block in enumerate(report.walk(system))]
    return [(path, block) for path, block in blocks if check_block(block, path, IN_SYSTEM, report)]


def _check_citations(turns: list[Turn], report: Report) -> None:
    # Since the newest version only the assistant cites: citations on the user's own text are refused.
    for path, block in (entry for turn in turns if turn.role == "user" for entry in turn.blocks):
        texts = block["content"] if block["type"] == "search_result" else [block]
        if any(type_of(text) == "text" and text.get("citations") for text in texts):
            refuse(report, "value", path, "citations are not permitted in user messages")


# Thinking.


def _excludes_force(body: dict[str, Any], model: ModelRules) -> bool:
    """Whether thinking excludes that a tool is forced."""
    kind = type_of(body.get("thinking"))
    return not model.forced or (kind in THINKING and kind != "adaptive")


def _thinks(body: dict[str, Any]) -> bool:
    return type_of(body.get("thinking")) in THINKING


def _check_thinking(body: dict[str, Any], model: ModelRules, report: Report) -> None:
    if "thinking" not in body:
        return
    thinking = body["thinking"]
    kind = type_of(thinking)
    if kind not in THINKING_MEMBERS:
        server_text = f"Input tag {kind!r} does not match any of the expected tags: {', '.join(THINKING_MEMBERS)}"
        problem = f"{as_json(thinking)} has none of the types {', '.join(THINKING_MEMBERS)}"
        refuse(report, "discriminator", "thinking", server_text, problem)
        return
    is_whole = check_members(thinking, f"thinking.{kind}", THINKING_MEMBERS[kind], report)
    check_type(model, body.get("model"), kind, report)
    if thinking.get("display") not in (None, "summarized", "omitted"):
        refuse(report, "value", f"thinking.{kind}.display", "Input should be 'summarized' or 'omitted'")
    if kind == "enabled" and is_whole:
        _check_budget(thinking["budget_tokens"], body.get("max_tokens"), report)
    if _thinks(body):
        _check_sampling(body, report)


def _check_budget(budget: int, max_tokens: Any, report: Report) -> None:
    # "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".
    path = "thinking.enabled.budget_tokens"
    if budget < 1024:
        refuse(report, "value", path, "Input should be greater than or equal to 1024")
    # "`max_tokens` must be greater than `thinking.budget_tokens`": the budget is part of the limit.
    if isinstance(max_tokens, int) and budget >= max_tokens:
        report.add("combination", path, "`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_sampling(body: dict[str, Any], report: Report) -> None:
    # "`temperature` may only be set to 1 when thinking is enabled".
    if body.get("temperature", 1) != 1:
        message = "`temperature` may only be set to 1 when thinking is enabled"
        report.add("combination", "temperature", message, "with thinking, the temperature is 1")
    # "`top_k` must be unset when thinking is enabled".
    if "top_k" in body:
        message = "`top_k` must be unset when thinking is enabled"
        report.add("combination", "top_k", message, "with thinking there is no `top_k`")
    # "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled".
    top_p = body.get("top_p")
    if isinstance(top_p, int | float) and top_p < 0.95:
        message = "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled"
        report.add("combination", "top_p", message, "with thinking, `top_p` is at least 0.95")


# The form of the output, and hints about caching.


def _check_output(body: dict[str, Any], model: ModelRules, report: Report) -> None:
    config = body.get("output_config", {})
    if not check_members(config, "output_config", OUTPUT_CONFIG, report):
        config = {}
    effort = config.get("effort")
    # Five words of effort; those of other APIs (`minimal`, `none`) are refused.
    if effort in EFFORTS:
        check_effort(model, effort, type_of(body.get("thinking")), report)
    elif effort is not None:
        server_text = f"Input should be one of {', '.join(EFFORTS)}"
        refuse(
            report,
            "value",
            "output_config.effort",
            server_text,
            f"{as_json(effort)} is not one of {', '.join(EFFORTS)}",
        )
    if config.get("format") is not None:
        _check_output_format(config["format"], "output_config.format", report)
    if body.get("output_format") is not None:
        # The older name and the newer one, both at once: which is meant?
        if config.get("format") is not None:
            server_text = "cannot be given together with output_config.format"
            refuse(report, "combination", "output_format", server_text)
        _check_output_format(body["output_format"], "output_format", report)


def _check_output_format(format: Any, path: str, report: Report) -> None:
    if not check_members(format, path, OUTPUT_FORMAT, report):
        return
    # One type of format: there is no mode of JSON without a schema.
    if format["type"] != "json_schema":
        refuse(report, "discriminator", f"{path}.type", "Input should be 'json_schema'")
        return
    check_enforced_schema(format["schema"], f"{path}.schema", report)


def _check_cache(
    body: dict[str, Any], system: list[tuple[str, dict[str, Any]]], turns: list[Turn], report: Report
) -> None:
    check_cache_control(body.get("cache_control"), "body", report)
    marks = [(path, holder["cache_control"]) for path, holder in _cacheable(body, system, turns) if _is_marked(holder)]
    # "A maximum of 4 blocks with cache_control may be provided. Found 5."
    if len(marks) > MAX_MARKS:
        message = f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
        report.add("value", f"{marks[MAX_MARKS][0]}cache_control", message)
    lives = [mark.get("ttl", "5m") for _, mark in marks]
    # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block", in the order tools, system,
    # messages.
    if lives != sorted(lives):
        message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        path = next(path for (path, _), life in zip(marks, lives, strict=True) if life == "5m")
        report.add("combination", f"{path}cache_control", message)


def _cacheable(
    body: dict[str, Any], system: list[tuple[str, dict[str, Any]]], turns: list[Turn]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all that may have a mark, in the order of the prompt, each with the beginning of its members' paths."""
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        yield f"tools.{index}.", tool
    blocks = [entry for turn in turns for entry in turn.blocks]
    for path, block in (*system, *blocks):
        content = block.get("content")
        if block["type"] == "tool_result" and isinstance(content, list):
            yield from ((f"{path}.content.{index}.", part) for index, part in enumerate(content))
        yield f"{path}.", block
    yield "", body


def _is_marked(holder: Any) -> bool:
    """Return whether an object has a valid mark."""
    match holder:
        case {"cache_control": {"type": "ephemeral", **rest}}:
            return rest.get("ttl", "5m") in ("5m", "1h")
        case _:
            return False


SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
SETTINGS: Final[dict[str, Range | type | tuple[Any, ...]]] = {
    "max_tokens": Range(1, 2**31),
    "temperature": Range(0, 1, allows_fraction=True),
    "top_p": Range(0, 1, allows_fraction=True),
    "top_k": Range(0, 2**31),
    "stream": bool,
    "stop_sequences": list,
    "service_tier": ("auto", "standard_only"),
    "speed": (None, "standard", "fast"),
}
FIELDS: Final = frozenset(
    {
        *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"),
        *("metadata", "container", "diagnostics", "inference_geo", *SETTINGS),
    }
)
COUNTED_FIELDS: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"}
)
#: A field of a beta is known if the beta header has a name that begins so.
BETA_FIELDS: Final = {
    "context_management": "context-management-",
    "mcp_servers": "mcp-client-",
    "output_format": "structured-outputs-",
    "compaction": "compact-",
}
THINKING_MEMBERS: Final = {
    "enabled": Members({"type": str, "budget_tokens": int}, ("display",)),
    "adaptive": Members({"type": str}, ("display",)),
    "between_tools": Members({"type": str}),
    "disabled": Members({"type": str}),
}
METADATA: Final = Members({}, ("user_id",))
OUTPUT_CONFIG: Final = Members({}, ("effort", "format", "task_budget"))
OUTPUT_FORMAT: Final = Members({"type": str, "schema": dict})
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
MAX_MARKS: Final = 4
