"""The rules of Ollama servers. `check` reports what they refuse in a body of `/api/chat` or `/api/generate`.

The server decodes a body into typed structures: a value of another type is an error, an unknown field is ignored. The
comment of each rule names what it copies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from antiphon.rules.report import Report, as_json

#: The code of a violation that the server answers with status 500.
OPTION_CODE: Final = "option_type"


def check(body: dict[str, Any], report: Report) -> None:
    """Check a body, except its model."""
    _check_types(body, FIELD_TYPES, "", report)
    _check_think(body.get("think"), report)
    _check_keep_alive(body.get("keep_alive"), report)
    _check_images(body.get("images"), "images", report)
    messages = body.get("messages")
    for at, message in enumerate(report.walk(messages if isinstance(messages, list) else ())):
        _check_message(message, f"messages[{at}]", report)
    tools = body.get("tools")
    for at, tool in enumerate(report.walk(tools if isinstance(tools, list) else ())):
        _check_tool(tool, f"tools[{at}]", report)
    _check_format(body.get("format"), report)
    _check_top_logprobs(body.get("top_logprobs"), report)
    options = body.get("options")
    _check_options(options if isinstance(options, dict) else {}, report)


def check_model(body: dict[str, Any], report: Report) -> None:
    # A name is required; the server answers with this text even if the name cannot be parsed.
    if not isinstance(body.get("model"), str) or not body["model"]:
        report.add("missing_field", "model", "model is required", "a request names its model")


def _check_types(value: dict[str, Any], types: Mapping[str, str], parent: str, report: Report) -> bool:
    """Check the types of known fields; return whether all are right."""
    # Go: "json: cannot unmarshal number into Go struct field ChatRequest.messages of type …"; null is a zero value.
    is_right = True
    for name, wanted in types.items():
        field = value.get(name)
        if field is not None and not _has_type(field, wanted):
            is_right = False
            message = f"json: cannot unmarshal {_go_kind(field)} into Go struct field {name}"
            report.add("value", parent + name, message, f"{as_json(field)} is not {TYPE_WORDS[wanted]}")
    return is_right


def _check_message(message: Any, path: str, report: Report) -> None:
    if not isinstance(message, dict):
        text = f"json: cannot unmarshal {_go_kind(message)} into Go struct field messages"
        report.add("value", path, text, f"{as_json(message)} is not an object")
        return
    _check_types(message, MESSAGE_TYPES, f"{path}.", report)
    _check_images(message.get("images"), f"{path}.images", report)
    calls = message.get("tool_calls")
    for at, call in enumerate(report.walk(calls if isinstance(calls, list) else ())):
        _check_call(call, f"{path}.tool_calls[{at}]", report)


def _check_call(call: Any, path: str, report: Report) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        text = f"json: cannot unmarshal {_go_kind(call)} into Go struct field tool_calls"
        report.add("tool_form", path, text, "a call is an object with a function")
        return
    # Arguments are an object; the JSON text of other APIs is refused.
    _check_types(call, {"id": "string"}, f"{path}.", report)
    _check_types(function, CALL_TYPES, f"{path}.function.", report)


def _check_tool(tool: Any, path: str, report: Report) -> None:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        text = f"json: cannot unmarshal {_go_kind(tool)} into Go struct field tools"
        report.add("tool_form", path, text, "a tool is an object with a function")
        return
    if not _check_types(function, FUNCTION_TYPES, f"{path}.function.", report):
        return
    parameters = function.get("parameters") or {}
    place = f"{path}.function.parameters"
    # The schema of the arguments is typed too: one type, an object of properties, a list of required names.
    if _check_types(parameters, PARAMETER_TYPES, f"{place}.", report):
        for name, schema in report.walk((parameters.get("properties") or {}).items()):
            _check_property(schema, f"{place}.properties.{name}", report)


def _check_property(schema: Any, path: str, report: Report) -> None:
    if not isinstance(schema, dict):
        text = f"json: cannot unmarshal {_go_kind(schema)} into Go value of type api.ToolProperty"
        report.add("schema", path, text, f"{as_json(schema)} is not an object")
        return
    kind = schema.get("type")
    # A type is a string or a list of strings.
    if kind is not None and not isinstance(kind, str) and not _has_type(kind, "strings"):
        text = f"json: cannot unmarshal {_go_kind(kind)} into Go value of type []string"
        report.add("schema", f"{path}.type", text, f"{as_json(kind)} is not a type")
    _check_types(schema, PROPERTY_TYPES, f"{path}.", report)


def _check_images(images: Any, path: str, report: Report) -> None:
    # Images are bytes in base64; a `data:` URL is refused.
    for at, image in enumerate(report.walk(images if isinstance(images, list) else ())):
        if not isinstance(image, str) or len(image) % 4 or not BASE64.fullmatch(image):
            message = "illegal base64 data at input byte 0"
            report.add("media", f"{path}[{at}]", message, "an image is data in base64, without `data:`")


def _check_think(think: Any, report: Report) -> None:
    # A boolean, or one of four levels.
    if think is None or isinstance(think, bool) or think in LEVELS:
        return
    message = f'invalid think value: {as_json(think)} (must be "high", "medium", "low", "max", true, or false)'
    report.add("value", "think", message, f"{as_json(think)} is not true, false or one of {', '.join(LEVELS)}")


def _check_keep_alive(value: Any, report: Report) -> None:
    # Seconds, or a duration with a unit, such as "5m".
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return
    if not isinstance(value, str) or not DURATION.fullmatch(value):
        message = f"time: invalid duration {as_json(value)}"
        report.add("value", "keep_alive", message, f"{as_json(value)} is not a number of seconds or a duration")


def _check_format(format: Any, report: Report) -> None:
    # "json", or the object of a schema; an empty text is none.
    if format is None or format in ("", "json") or isinstance(format, dict):
        return
    message = f'invalid format: {as_json(format)}; expected "json" or a valid JSON Schema object'
    report.add("value", "format", message, f'{as_json(format)} is not "json" or a JSON schema')


def _check_top_logprobs(value: Any, report: Report) -> None:
    if isinstance(value, int) and not 0 <= value <= MAX_TOP_LOGPROBS:
        problem = f"{value} is not between 0 and {MAX_TOP_LOGPROBS}"
        report.add("value", "top_logprobs", "top_logprobs must be between 0 and 20", problem)


def _check_options(options: dict[str, Any], report: Report) -> None:
    # An option of a wrong type is an error; one with an unknown name is ignored.
    for name, wanted in OPTION_TYPES.items():
        value = options.get(name)
        if value is not None and not _has_type(value, wanted):
            message = f'option "{name}" must be of type {OPTION_WORDS[wanted]}'
            problem = f"{as_json(value)} is not {TYPE_WORDS[wanted]}"
            report.add("value", f"options.{name}", message, problem, code=OPTION_CODE)


def _has_type(value: Any, wanted: str) -> bool:
    match wanted:
        case "number" | "integer":
            # The server converts any number to an integer option.
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "strings":
            return isinstance(value, list) and all(isinstance(member, str) for member in value)
        case _:
            return isinstance(value, PYTHON_TYPES[wanted])


def _go_kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


LEVELS: Final = ("low", "medium", "high", "max")
MAX_TOP_LOGPROBS: Final = 20
BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
DURATION: Final = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+|[+-]?0")
PYTHON_TYPES: Final[dict[str, type]] = {"string": str, "boolean": bool, "array": list, "object": dict}
TYPE_WORDS: Final = {
    "string": "a string",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "number": "a number",
    "integer": "a number",
    "strings": "an array of strings",
}
OPTION_WORDS: Final = {"integer": "integer", "number": "float32", "strings": "array", "boolean": "boolean"}
FIELD_TYPES: Final = {
    "messages": "array",
    "tools": "array",
    "prompt": "string",
    "system": "string",
    "suffix": "string",
    "template": "string",
    "context": "array",
    "images": "array",
    "stream": "boolean",
    "raw": "boolean",
    "truncate": "boolean",
    "shift": "boolean",
    "logprobs": "boolean",
    "top_logprobs": "integer",
    "options": "object",
}
MESSAGE_TYPES: Final = {
    "role": "string",
    "content": "string",
    "thinking": "string",
    "images": "array",
    "tool_calls": "array",
    "tool_name": "string",
    "tool_call_id": "string",
}
CALL_TYPES: Final = {"name": "string", "index": "integer", "arguments": "object"}
FUNCTION_TYPES: Final = {"name": "string", "description": "string", "parameters": "object"}
PARAMETER_TYPES: Final = {"type": "string", "required": "strings", "properties": "object"}
PROPERTY_TYPES: Final = {"description": "string", "enum": "array", "anyOf": "array", "required": "strings"}
OPTION_TYPES: Final = {
    **dict.fromkeys(("num_keep", "seed", "num_predict", "top_k", "repeat_last_n"), "integer"),
    **dict.fromkeys(("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread"), "integer"),
    **dict.fromkeys(("top_p", "min_p", "typical_p", "temperature", "repeat_penalty"), "number"),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), "number"),
    "use_mmap": "boolean",
    "stop": "strings",
}
