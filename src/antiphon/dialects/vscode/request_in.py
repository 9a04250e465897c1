"""Translates an editor's request into a hub request: settings and tools. `history_in` translates the messages.

Unknown options keep their names (REQ-7), so that `chat:stop`, for example, reaches chat servers.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.vscode.history_in import history_to_hub
from antiphon.dialects.vscode.wire import ModelOptionsIn, OptionsIn, RequestIn, ToolIn
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ENCRYPTED_IF_ANY, Request
from antiphon.protocol.tools import FunctionToolParam, ToolChoiceValue, ToolParam


def request_to_hub(body: bytes) -> tuple[Request, Losses]:
    """Return a client's body as a hub request, and the losses."""
    editor_request: RequestIn = codec.decode_as(body, RequestIn)
    losses = Losses()
    report_unknown_fields(editor_request, "body", losses)
    report_unknown_fields(editor_request.choices, "choices", losses)
    conversation = history_to_hub(editor_request.messages, editor_request.choices, losses)
    options = editor_request.options or OptionsIn()
    report_unknown_fields(options, "options", losses)
    model_options = options.model_options or ModelOptionsIn()
    request = Request(
        model=editor_request.model,
        instructions=conversation.instructions,
        input=conversation.items,
        tools=_tools_to_hub(options.tools, losses) if options.tools else UNSET,
        tool_choice=_tool_choice(options, losses),
        parallel_tool_calls=model_options.parallel_tool_calls,
        text=model_options.text,
        max_output_tokens=model_options.max_output_tokens or model_options.max_tokens or UNSET,
        temperature=model_options.temperature,
        top_p=model_options.top_p,
        presence_penalty=model_options.presence_penalty,
        frequency_penalty=model_options.frequency_penalty,
        # RSN-2: the editor stores encrypted reasoning with the thinking that it shows.
        include=[ENCRYPTED_IF_ANY],
        reasoning=model_options.reasoning,
        stream=editor_request.stream,
        store=False,
        extra=_unknown_options(model_options, losses),
    )
    return request, losses


def _tools_to_hub(tools: list[ToolIn], losses: Losses) -> list[ToolParam]:
    """A-7: translate the tools to flat functions."""
    return [_tool_to_hub(tool, f"options.tools[{index}]", losses) for index, tool in enumerate(tools)]


def _tool_to_hub(tool: ToolIn, path: str, losses: Losses) -> FunctionToolParam:
    report_unknown_fields(tool, path, losses)
    return FunctionToolParam(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=False,  # the editor's schemas are not written for strict mode
    )


def _tool_choice(options: OptionsIn, losses: Losses) -> ToolChoiceValue | UnsetType:
    """A-7: translate the tool mode. The editor always sends one; without tools it is ignored."""
    mode = options.tool_mode
    if not options.tools or mode is UNSET or mode is None:
        return UNSET
    if mode not in TOOL_MODES:
        losses.add("options.toolMode", f"the tool mode {mode}", "it is unknown; 'auto' is used")
    return TOOL_MODES.get(mode, "auto")


def _unknown_options(model_options: ModelOptionsIn, losses: Losses) -> dict[str, Raw] | UnsetType:
    """Return the unknown options, without those that are named like a request field: they would bypass the body."""
    unknown = model_options.extra or {}
    for name in unknown.keys() & REQUEST_FIELDS:
        losses.add(f"options.modelOptions.{name}", f"the option {name!r}", "it has the name of a request field")
    return {name: raw for name, raw in unknown.items() if name not in REQUEST_FIELDS} or UNSET


TOOL_MODES: Final[dict[int, ToolChoiceValue]] = {1: "auto", 2: "required"}
REQUEST_FIELDS: Final = frozenset(Request.__struct_fields__)
