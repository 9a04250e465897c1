"""The rules of gemini servers for the system instruction, tools and settings; other modules have the rest.

Not every version has every rule; a request without violations is accepted by all of them. Where that would be too
strict, an option controls the rule. The comment of each rule names what it copies; error messages are close to the real
ones.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from antiphon.rules.gemini.history import NAME, check_contents, is_function_name
from antiphon.rules.gemini.refusing import refuse
from antiphon.rules.gemini.schemas import check_json_schema, check_parameters, check_schema
from antiphon.rules.gemini.shapes import SHAPES, Message, Shapes, read_message
from antiphon.rules.report import Report, as_json
from antiphon.rules.settings import Range


class GeminiOptions(Struct, frozen=True, kw_only=True):
    """The rules that not all servers and versions have."""

    #: Whether calls and their results may have ids.
    ids: bool = True
    #: Whether user and model must alternate, as in the first generation; newer servers join consecutive contents.
    alternation: bool = False
    #: Whether the last content must be the user's or the result of a call.
    last_word: bool = True
    #: Whether `additionalProperties` may stand in a schema of the server's own kind.
    additional_properties: bool = False
    #: Whether an object may have no properties in such a schema.
    empty_objects: bool = False
    #: Whether functions may be offered where the answer must be JSON; None: it depends on the model's name, as below.
    json_with_tools: bool | None = None
    #: Whether the calls of the turn in progress must have their signatures.
    signatures: bool | None = None


def check(body: dict[str, Any], report: Report) -> None:
    """Check a body for a model of unknown name. A body with values of wrong types is not checked further."""
    message = read_request(body, "request", GeminiOptions(), report)
    hint = next((f"; `{name}` is a field of another dialect" for name in ("messages", "input") if name in body), "")
    if message.is_well_typed:
        check_request(message.value, report, GeminiOptions(), "", hint)


def read_request(body: dict[str, Any], shape: str, options: GeminiOptions, report: Report) -> Message:
    """Read a body of this shape (`request`, `countTokens`), every field under its camelCase name."""
    return read_message(body, shape, _shapes(options), report)


def check_request(request: dict[str, Any], report: Report, options: GeminiOptions, model: str, hint: str = "") -> None:
    """Check a request that `read_request` returned."""
    check_contents(
        request.get("contents"),
        report,
        must_alternate=options.alternation,
        must_end_with_user=options.last_word,
        needs_signatures=signs_calls(model, options),
        hint=hint,
    )
    _check_instruction(request.get("systemInstruction"), report)
    tools = request.get("tools", [])
    names = _check_tools(tools, model, options, report)
    _check_choice(request.get("toolConfig", {}).get("functionCallingConfig"), names, report)
    _check_config(request.get("generationConfig", {}), model, bool(names), options, report)


def generation(model: str) -> int | None:
    """Return the number in the model's name, as in `gemini-3-pro`; None if there is none."""
    number = GENERATION.search(model)
    return int(number[1]) if number else None


def signs_calls(model: str, options: GeminiOptions) -> bool:
    """Return whether the calls of this model are signed, and must come back so: from the third generation on."""
    return (generation(model) or 0) >= 3 if options.signatures is None else options.signatures


def _shapes(options: GeminiOptions) -> Shapes:
    shapes = dict(SHAPES)
    if options.additional_properties:
        shapes["schema"] = {**SHAPES["schema"], "additionalProperties": "any"}
    if not options.ids:
        # 'Unknown name "id" at 'contents[7].parts[0].function_response': Cannot find field.'
        for shape in ("functionCall", "functionResponse"):
            shapes[shape] = {name: kind for name, kind in SHAPES[shape].items() if name != "id"}
    return shapes


def _check_instruction(content: dict[str, Any] | None, report: Report) -> None:
    if content is None:
        return
    parts = content.get("parts", [])
    # It says "system_instruction.parts: contents.parts must not be empty."
    if not parts:
        problem = "a system instruction has at least one part"
        refuse(report, "missing_field", "system_instruction.parts", "contents.parts must not be empty.", problem)
    for index, part in enumerate(report.walk(parts)):
        # It says "system_instruction.parts[0].data: required oneof field 'data' must have one initialized field", also
        # for ""; and "Currently, text only".
        if not part.get("text"):
            path = f"system_instruction.parts[{index}]"
            server_text = "required oneof field 'data' must have one initialized field: a text"
            refuse(
                report, "missing_field", f"{path}.data", server_text, "it has a text that is not empty", exact_path=path
            )


# Tools.


def _check_tools(tools: list[dict[str, Any]], model: str, options: GeminiOptions, report: Report) -> set[str]:
    """Return the names of the functions."""
    names: set[str] = set()
    for index, tool in enumerate(report.walk(tools)):
        # It says "tools[0].tool_type: required one_of 'tool_type' must have one initialized field"
        if not any(kind in tool and tool[kind] != [] for kind in tool):
            server_text = "required one_of 'tool_type' must have one initialized field"
            problem = "a tool has `functionDeclarations` or a tool of the server"
            refuse(
                report, "missing_field", f"tools[{index}].tool_type", server_text, problem, exact_path=f"tools[{index}]"
            )
        for number, declaration in enumerate(report.walk(tool.get("functionDeclarations", ()))):
            path = f"tools[{index}].function_declarations[{number}]"
            _check_declaration(declaration, path, options, report)
            name = declaration.get("name", "")
            # It says "Duplicate function declaration found: f"
            if name in names:
                message = f"Duplicate function declaration found: {name}"
                report.add("name", f"{path}.name", message, f"another function is called {as_json(name)}")
            names.add(name)
    # It says "Tool use with function calling is unsupported": before the third generation
    has_hosted = any(tool.keys() - {"functionDeclarations"} for tool in tools)
    if names and has_hosted and (generation(model) or 0) < 3:
        message = "Tool use with function calling is unsupported"
        problem = "older models take functions or tools of the server, not both"
        first = next(index for index, tool in enumerate(tools) if "functionDeclarations" in tool)
        report.add("combination", f"tools[{first}]", message, problem, is_certain=False)
    return names


def _check_declaration(declaration: dict[str, Any], path: str, options: GeminiOptions, report: Report) -> None:
    name = declaration.get("name", "")
    # It says "Invalid function name. Must start with a letter or an underscore. Must be alphameric, underscores (_),
    # dots (.), colons (:) or dashes (-), with a maximum length of 64."
    if not is_function_name(name):
        problem = f"{as_json(name)} is not a valid name: expected {NAME.pattern}" if name else "a function has a name"
        server_text = f"Invalid function name: {name!r} does not match {NAME.pattern}"
        refuse(report, "name" if name else "missing_field", f"{path}.name", server_text, problem)
    for own, json_schema in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
        # Documented as mutually exclusive.
        if own in declaration and json_schema in declaration:
            refuse(report, "combination", path, f"only one of {own} and {json_schema} may be set")
        if json_schema in declaration:
            check_json_schema(declaration[json_schema], f"{path}.{json_schema}", report)
    schema = declaration.get("parametersJsonSchema")
    if isinstance(schema, dict) and schema.get("type") != "object":
        server_text = "functionDeclaration parameters schema should be of type OBJECT."
        problem = f"the schema of a function's parameters has the type object, not {as_json(schema.get('type'))}"
        refuse(report, "schema", f"{path}.parameters_json_schema", server_text, problem)
    if "parameters" in declaration:
        check_parameters(declaration["parameters"], f"{path}.parameters", report, empty_objects=options.empty_objects)


def _check_choice(config: dict[str, Any] | None, names: set[str], report: Report) -> None:
    if config is None:
        return
    # It says "Function calling config is set without function_declarations."
    if not names:
        message = "Function calling config is set without function_declarations."
        report.add("combination", CHOICE, message, "it is for requests with functions, and there are none")
        return
    allowed = config.get("allowedFunctionNames", ())
    # It says "allowed_function_names should be set only when function calling mode is ANY", or the newer VALIDATED
    if allowed and config.get("mode") not in ("ANY", "VALIDATED"):
        server_text = "allowed_function_names should be set only when function calling mode is ANY or VALIDATED."
        refuse(report, "combination", CHOICE, server_text)
    for name in report.walk(allowed):
        # It says "allowed_function_names should match function_declarations.name"
        if name not in names:
            problem = f"the function {as_json(name)} is allowed, and not offered"
            server_text = f"{name!r} is not one of function_declarations"
            refuse(report, "name", f"{CHOICE}.allowed_function_names", server_text, problem)


# Settings.


def _check_config(
    config: dict[str, Any], model: str, has_functions: bool, options: GeminiOptions, report: Report
) -> None:
    for field, expected in RANGES.items():
        # It says "temperature must be in the range [0.0, 2.0]."
        if field in config and not expected.contains(config[field]):
            server_text = f"{field} must be in the range [{expected.minimum}, {expected.maximum}]."
            problem = f"{as_json(config[field])} is not between {expected.minimum} and {expected.maximum}"
            refuse(report, "value", f"generation_config.{field}", server_text, problem)
    # It says "the number of stop_sequences must be less than or equal to 5", and none of them may be empty
    stops = config.get("stopSequences", [])
    if len(stops) > 5 or not all(stops):
        refuse(report, "value", "generation_config.stop_sequences", "at most 5 stop sequences, none of them empty")
    # It says "logprobs is only valid if response_logprobs=True"
    if "logprobs" in config and not config.get("responseLogprobs"):
        refuse(report, "combination", "generation_config.logprobs", "only valid if response_logprobs is true")
    _check_thinking(config.get("thinkingConfig", {}), model, report)
    _check_format(config, options, report)
    kind = config.get("responseMimeType", "text/plain")
    together = (generation(model) or 0) >= 3 if options.json_with_tools is None else options.json_with_tools
    # It says "Function calling with a response mime type: 'application/json' is unsupported": before the third
    # generation
    if has_functions and kind != "text/plain" and not together:
        report.add(
            "combination",
            "generation_config.response_mime_type",
            f"Function calling with a response mime type: '{kind}' is unsupported",
            "older models take functions or an answer in JSON, not both",
            is_certain=False,
            settings=("wire.json_with_tools = []",),
        )


def _check_thinking(config: dict[str, Any], model: str, report: Report) -> None:
    budget, level = config.get("thinkingBudget"), config.get("thinkingLevel")
    path = "generation_config.thinking_config"
    # It says "You can only set only one of thinking budget and thinking level."
    if budget is not None and level is not None:
        message = "You can only set only one of thinking budget and thinking level."
        report.add("combination", path, message, "a thinking budget and a thinking level exclude each other")
    # It says "Thinking level is not supported for this model.": before the third generation
    if level is not None and (generation(model) or 3) < 3:
        message = "Thinking level is not supported for this model."
        report.add("reasoning", f"{path}.thinking_level", message, is_certain=False)
    allowed = next(budgets for pattern, budgets in BUDGETS if pattern.search(model))
    # It says "The thinking budget (52428) is invalid. Please choose a value between 128 and 32768."; -1 lets the model
    # choose
    if budget is not None and budget != -1 and not any(range.contains(budget) for range in allowed):
        message = f"The thinking budget ({budget}) is invalid."
        report.add("reasoning", f"{path}.thinking_budget", message, is_certain=False)


def _check_format(config: dict[str, Any], options: GeminiOptions, report: Report) -> None:
    kind = config.get("responseMimeType", "text/plain")
    # It says "response_mime_type: allowed mimetypes are `text/plain`, `application/json`, `application/xml`,
    # `application/yaml` and `text/x.enum`."
    if kind not in MIME_TYPES:
        server_text = f"allowed mimetypes are {', '.join(MIME_TYPES)}."
        refuse(report, "value", "generation_config.response_mime_type", server_text)
    # It says "If set, response_schema must be omitted, but response_mime_type is required."
    if "responseSchema" in config and "responseJsonSchema" in config:
        server_text = "only one of response_schema and response_json_schema may be set"
        refuse(
            report, "combination", "generation_config", server_text, exact_path="generation_config.response_json_schema"
        )
    if "responseSchema" in config:
        path = "generation_config.response_schema"
        # It says "response_schema is only supported with response_mime_type 'application/json' or 'text/x.enum'"
        if kind == "text/plain":
            server_text = "only allowed when response_mime_type is application/json or text/x.enum"
            refuse(report, "combination", path, server_text)
        check_schema(config["responseSchema"], path, report, empty_objects=options.empty_objects)
    if "responseJsonSchema" in config:
        path = "generation_config.response_json_schema"
        if kind != "application/json":
            refuse(report, "combination", path, "only allowed when response_mime_type is application/json")
        check_json_schema(config["responseJsonSchema"], path, report)


GENERATION: Final = re.compile(r"gemini-(\d{1,9})")
CHOICE: Final = "tool_config.function_calling_config"
MIME_TYPES: Final = ("text/plain", "application/json", "text/x.enum")
RANGES: Final = {
    "temperature": Range(0, 2),
    "topP": Range(0, 1),
    "topK": Range(1, 2**31 - 1),
    "candidateCount": Range(1, 8),
    "maxOutputTokens": Range(1, 2**31 - 1),
    "seed": Range(-(2**31), 2**31 - 1),
    "presencePenalty": Range(-2, 2),
    "frequencyPenalty": Range(-2, 2),
    "logprobs": Range(0, 20),
}
#: Which budgets of thought models take, by their names: documented for the second generation. Only the biggest cannot
#: be told not to think at all; the others, and those that nobody knows, can.
BUDGETS: Final = (
    (re.compile(r"gemini-2\.5-pro"), (Range(128, 32_768),)),
    (re.compile(r"gemini-2\.5-flash-lite"), (Range(0, 0), Range(512, 24_576))),
    (re.compile(r"gemini-2\.5"), (Range(0, 24_576),)),
    (re.compile(""), (Range(0, 32_768),)),
)
