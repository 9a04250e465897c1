"""Python functions as tools: derives the JSON schema from signature and docstring, and calls them with a model's
arguments.

An error in a call is never raised. It is sent to the model as the output of the call, so that the model can correct it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.protocol.tools import FunctionToolParam, JsonSchema

Function = Callable[..., Any]


class PythonTool(Struct, frozen=True, kw_only=True):
    """A function that a model may call."""

    function: Function
    param: FunctionToolParam
    arguments: type[Struct]

    @property
    def name(self) -> str:
        return self.param.name


class CallOutcome(Struct, frozen=True):
    """The output of a call, as it is sent to the model."""

    output: str
    failed: bool = False


def tool_from_function(function: Function) -> PythonTool:
    """Makes a tool of a function. Parameters must be named; their types can be all that msgspec supports."""
    name = getattr(function, "__name__", "")
    if not TOOL_NAME.fullmatch(name):
        raise TypeError(
            f"{name or function!r} cannot be a tool: expected a function whose name has only letters, digits and _"
        )
    description, descriptions = _parse_docstring(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any, Any] | tuple[str, Any]] = []
    defaults: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in NAMED_KINDS:
            raise TypeError(f"{name}() cannot be a tool: the parameter {parameter} cannot be passed by name")
        hint = _described_type(hints.get(parameter.name, Any), descriptions.get(parameter.name))
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint | UnsetType if hint is not Any else Any, UNSET))
            defaults[parameter.name] = parameter.default
    arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
    schema = _schema(arguments, defaults)
    return PythonTool(
        function=function,
        param=FunctionToolParam(name=name, description=description or UNSET, parameters=schema, strict=False),
        arguments=arguments,
    )


async def call_function(tool: PythonTool, arguments: str) -> CallOutcome:
    """Calls the function with a model's arguments: in this task if it is a coroutine function, else in a thread."""
    try:
        # `strict=False` accepts "3" for 3.
        decoded = msgspec.json.decode(arguments or "{}", type=tool.arguments, strict=False)
        decoded_arguments = {
            name: value for name in tool.arguments.__struct_fields__ if (value := getattr(decoded, name)) is not UNSET
        }
        if inspect.iscoroutinefunction(tool.function):
            result = await tool.function(**decoded_arguments)
        else:
            result = await asyncio.to_thread(tool.function, **decoded_arguments)
        return CallOutcome(result if isinstance(result, str) else msgspec.json.encode(result).decode())
    except Exception as error:  # the user's code may raise anything; the model gets the error
        return CallOutcome(f"{type(error).__name__}: {error}", failed=True)


def _schema(arguments: type[Struct], defaults: dict[str, Any]) -> JsonSchema:
    [_], components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema: JsonSchema = components.pop(arguments.__name__)
    properties: dict[str, Any] = schema["properties"]
    for name, default in defaults.items():
        with suppress(TypeError):  # the default has no JSON form: omit it
            properties[name]["default"] = msgspec.to_builtins(default)
    schema = {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
    return {**schema, "$defs": components} if components else schema


def _described_type(hint: Any, description: str | None) -> Any:
    """The type with its description, from `Annotated[int, "in metres"]` or from the docstring."""
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        metadata = tuple(notes)
    metadata = tuple(Meta(description=note) if isinstance(note, str) else note for note in metadata)
    if description and not any(isinstance(note, Meta) and note.description for note in metadata):
        metadata = (*metadata, Meta(description=description))
    for note in metadata:
        hint = Annotated[hint, note]
    return hint


def _parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The descriptions of the function and of its parameters (under `Args:`, or after `:param name:`)."""
    descriptions = {name: " ".join(text.split()) for name, text in PARAM_FIELD.findall(doc)}
    head, args, args_section = doc.partition("\nArgs:\n")
    if args:
        section = SECTION_HEADING.split(args_section)[0]
        descriptions |= {name: " ".join(text.split()) for name, text in ARGS_ENTRY.findall(section)}
    description = SECTION_HEADING.split(FIELD_LINE.split(head)[0])[0]
    return description.strip(), descriptions


TOOL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
NAMED_KINDS: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})
SECTION_HEADING: Final = re.compile(r"^(?:Args|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE)
PARAM_FIELD: Final = re.compile(r"^:param (\w+):[ \t]*((?:.*)(?:\n[ \t]+.*)*)", re.MULTILINE)
FIELD_LINE: Final = re.compile(r"^:\w+", re.MULTILINE)
ARGS_ENTRY: Final = re.compile(r"^ {2,4}(\w+)(?: \([^)\n]*+\))?+:[ \t]*((?:.*)(?:\n {5,}.*)*)", re.MULTILINE)
