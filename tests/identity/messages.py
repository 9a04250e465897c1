"""Cases of Anthropic's Messages API, from the beta types of the SDK `anthropic`, which have all fields of the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from anthropic.types import beta
from anthropic.types.beta.beta_raw_message_delta_event import Delta
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from tests.identity.generator import Generator
from tests.identity.sdk_types import fields_of, members_of, words_of
from tests.identity.source import MODEL, PIXEL, Case, Source, make_argument_object, make_schema, make_url


def make_case(generator: Generator, is_stream: bool) -> Case:
    generator.start_case(MessageCreateParamsBase)
    request = _make_request(generator, is_stream)
    generator.start_case(beta.BetaRawMessageStreamEvent)
    message = _make_message(generator, request)
    return Case(request, list(_make_events(generator, message)) if is_stream else [message])


# Requests


def _make_request(generator: Generator, is_stream: bool) -> dict[str, Any]:
    tools = _make_tools(generator)
    names = [tool["name"] for tool in tools if tool.get("type") in (None, "custom") and "name" in tool]
    messages = [_user_message(generator)]
    for _ in range(generator.random.randint(0, 2)):
        messages += _make_answered_turn(generator, names)
    if generator.chance(0.2) and messages[-1]["role"] == "user":
        messages.append(generator.object(beta.BetaSystemMessageParam))
    return generator.object(
        MessageCreateParamsBase,
        messages=messages,
        tools=tools or ...,
        tool_choice=_make_tool_choice(generator, names),
        stream=True if is_stream else generator.random.choice((False, ...)),
    )


def _make_tools(generator: Generator) -> list[dict[str, Any]]:
    [hint] = [field.hint for field in fields_of(MessageCreateParamsBase) if field.name == "tools"]
    tools = [generator.object(beta.BetaToolParam) for _ in range(generator.random.randint(0, 2))]
    if generator.chance():
        tools += generator.value(hint)
    return list({tool.get("name", tool.get("type")): tool for tool in tools}.values())


def _make_tool_choice(generator: Generator, names: list[str]) -> Any:
    if not names or generator.chance(0.6):
        return ...
    kinds = (beta.BetaToolChoiceAutoParam, beta.BetaToolChoiceAnyParam, beta.BetaToolChoiceNoneParam)
    if generator.chance(0.3):
        return generator.object(beta.BetaToolChoiceToolParam, name=generator.random.choice(names))
    return generator.object(generator.random.choice(kinds))


def _user_message(generator: Generator) -> dict[str, Any]:
    if generator.chance(0.3):
        return generator.object(beta.BetaUserMessageParam, content=generator.text())
    kinds = [generator.pick(USER_BLOCKS) for _ in range(generator.random.randint(1, 2))]
    return generator.object(beta.BetaUserMessageParam, content=[generator.object(kind) for kind in kinds])


def _make_answered_turn(generator: Generator, names: list[str]) -> Iterator[dict[str, Any]]:
    count = generator.random.randint(0, 2) if names else 0
    calls = [generator.object(beta.BetaToolUseBlockParam, name=generator.random.choice(names)) for _ in range(count)]
    blocks = [block for _ in range(generator.random.randint(0, 2)) for block in _assistant_blocks(generator)]
    if not blocks and not calls:
        blocks = [generator.object(beta.BetaTextBlockParam)]
    if not calls and blocks[-1]["type"] in ("thinking", "redacted_thinking"):  # servers refuse thoughts at the end
        blocks.append(generator.object(beta.BetaTextBlockParam))
    yield generator.object(beta.BetaAssistantMessageParam, content=[*blocks, *calls])
    results = [_make_result(generator, call["id"]) for call in calls]
    extra = [generator.object(beta.BetaTextBlockParam)] if generator.chance() or not results else []
    yield generator.object(beta.BetaUserMessageParam, content=[*results, *extra])


def _make_result(generator: Generator, id: str) -> dict[str, Any]:
    """The result of a call. The result of a failed call is text."""
    failure: dict[str, Any] = (
        {"is_error": True, "content": generator.text()} if generator.chance(0.2) else {"is_error": ...}
    )
    return generator.object(beta.BetaToolResultBlockParam, tool_use_id=id, **failure)


def _assistant_blocks(generator: Generator) -> list[dict[str, Any]]:
    """A block, or a use of a server's tool with its result."""
    block = generator.object(generator.pick(ASSISTANT_BLOCKS))
    if "tool_use_id" not in block:
        return [block]
    use = beta.BetaMCPToolUseBlockParam if block["type"] == "mcp_tool_result" else beta.BetaServerToolUseBlockParam
    return [generator.object(use, id=block["tool_use_id"]), block]


# Answers


def _make_message(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    tools = request.get("tools") or []
    choice = (request.get("tool_choice") or {}).get("type")
    names = [tool["name"] for tool in tools if tool.get("type") in (None, "custom") and "name" in tool]
    if choice == "tool":
        names = [request["tool_choice"]["name"]]
    calls = []
    if names and choice != "none":
        is_single = (request.get("tool_choice") or {}).get("disable_parallel_tool_use")
        count = generator.random.randint(0, 1 if is_single else 2)
        calls = [generator.object(beta.BetaToolUseBlock, name=generator.random.choice(names)) for _ in range(count)]
    blocks = [block for _ in range(generator.random.randint(0, 2)) for block in _answer_blocks(generator)]
    if not blocks and not calls:
        blocks = [generator.object(beta.BetaTextBlock)]
    stop = "tool_use" if calls else generator.random.choice(STOPS)
    ends: dict[str, Any] = {"stop_sequence": "END" if stop == "stop_sequence" else None}
    details = {} if stop == "refusal" else {"stop_details": generator.random.choice((None, ...))}
    return generator.object(beta.BetaMessage, content=[*blocks, *calls], stop_reason=stop, **ends, **details)


def _answer_blocks(generator: Generator) -> list[dict[str, Any]]:
    block = generator.object(generator.pick(ANSWER_BLOCKS))
    if "tool_use_id" not in block:
        return [block]
    use = beta.BetaMCPToolUseBlock if block["type"] == "mcp_tool_result" else beta.BetaServerToolUseBlock
    return [generator.object(use, id=block["tool_use_id"]), block]


# Streams


def _make_events(generator: Generator, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    end = {name: message.pop(name, ...) for name in ("stop_reason", "stop_sequence", "stop_details")}
    content = message["content"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield generator.object(beta.BetaRawMessageStartEvent, message=start)
    if generator.chance(0.3):
        yield {"type": "ping"}
    for index, block in enumerate(content):
        first, deltas = _split_block(generator, block)
        yield generator.object(beta.BetaRawContentBlockStartEvent, index=index, content_block=first)
        for delta in deltas:
            yield generator.object(beta.BetaRawContentBlockDeltaEvent, index=index, delta=delta)
        yield generator.object(beta.BetaRawContentBlockStopEvent, index=index)
    delta = generator.object(Delta, **end)
    yield generator.object(beta.BetaRawMessageDeltaEvent, delta=delta)
    yield generator.object(beta.BetaRawMessageStopEvent)


def _split_block(generator: Generator, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it starts, and its deltas."""
    match block["type"]:
        case "text":
            pieces = [generator.object(beta.BetaTextDelta, text=piece) for piece in generator.split(block["text"])]
            cited = [generator.object(beta.BetaCitationsDelta, citation=each) for each in block.get("citations") or ()]
            start = {**block, "text": ""}
            if start.get("citations"):
                start["citations"] = []
            return start, [*cited, *pieces]
        case "thinking":
            pieces = [
                generator.object(beta.BetaThinkingDelta, thinking=each) for each in generator.split(block["thinking"])
            ]
            signature = generator.object(beta.BetaSignatureDelta, signature=block["signature"])
            return {**block, "thinking": "", "signature": ""}, [*pieces, signature]
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            pieces = [
                generator.object(beta.BetaInputJSONDelta, partial_json=piece)
                for piece in generator.split(json.dumps(block["input"]))
            ]
            return {**block, "input": {}}, pieces
        case "compaction" if block.get("content"):
            return {**block, "content": None}, [
                generator.object(beta.BetaCompactionContentBlockDelta, content=block["content"])
            ]
        case _:
            return block, []


def _blocks_of(hint: Any, *left_out: str) -> list[Any]:
    """The kinds of blocks in a union that have a name for their type, without some."""
    kinds = []
    for kind in members_of(hint):
        [word] = [words_of(members_of(field.hint)[0])[0] for field in fields_of(kind) if field.name == "type"]
        if word not in left_out:
            kinds.append(kind)
    return kinds


STOPS: Final = (
    *("end_turn", "end_turn", "max_tokens", "stop_sequence", "pause_turn", "compaction", "refusal"),
    "model_context_window_exceeded",
)
USES: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
USER_BLOCKS: Final = (
    beta.BetaTextBlockParam,
    beta.BetaTextBlockParam,
    beta.BetaImageBlockParam,
    beta.BetaRequestDocumentBlockParam,
    beta.BetaSearchResultBlockParam,
    beta.BetaContainerUploadBlockParam,
)
_PARAMS: Final = _blocks_of(beta.BetaContentBlockParam, *USES, "tool_result", "image", "document", "search_result")
ASSISTANT_BLOCKS: Final = [kind for kind in _PARAMS if kind.__name__.endswith("Param")]
ANSWER_BLOCKS: Final = _blocks_of(beta.BetaContentBlock, *USES)
SOURCE: Final = Source(
    dialect="messages",
    roots=(MessageCreateParamsBase, beta.BetaMessage, beta.BetaRawMessageStreamEvent),
    make_case=make_case,
    rules={
        "MessageCreateParamsBase.model": lambda _: MODEL,
        "MessageCreateParamsBase.max_tokens": lambda generator: generator.random.randint(2000, 9000),
        "BetaMessage.model": lambda _: "server-model",
        "*.url": make_url,
        "*.id": lambda generator: generator.new_name("id"),
        "*.tool_use_id": lambda generator: generator.new_name("srvtoolu"),
        "*.input": make_argument_object,
        "*.input_schema": make_schema,
        "*.schema": make_schema,
        "*.signature": Generator.base64,
        "BetaRedactedThinkingBlockParam.data": Generator.base64,
        "BetaRedactedThinkingBlock.data": Generator.base64,
        "BetaBase64ImageSourceParam.data": lambda _: PIXEL,
        "BetaBase64ImageSourceParam.media_type": lambda _: "image/png",
        "BetaBase64PDFSourceParam.data": Generator.base64,
        "BetaToolParam.name": lambda generator: generator.new_name("tool"),
        "BetaThinkingConfigEnabledParam.budget_tokens": lambda generator: generator.random.randint(1024, 1999),
    },
    left_out={
        "sent as a header": (
            "MessageCreateParamsBase.betas",
            "MessageCreateParamsBase.user_profile_id",
            "MessageCreateParamsBase.workspace_id",
        ),
        "one form of a JSON Schema, which is generated as JSON": ("BetaResponseToolInputSchema", "InputSchemaTyped"),
        "the gateway stores the thread, and the server gets the whole conversation (`tests/api/test_threads.py`)": (
            "MessageCreateParamsBase.thread",
        ),
    },
)
