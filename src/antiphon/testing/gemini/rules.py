"""The rules of real gemini servers. `check(call, received, limits, signatures)` returns the body, or raises
`GeminiRequestRefused`.

Not every version has every rule; a request that passes here is accepted by all of them. Where that would be too strict,
a limit controls the rule. The comment of each rule names what it copies; error messages are close to the real ones.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from antiphon.testing.gemini.errors import GeminiRequestRefused, error_info, field_violations
from antiphon.testing.gemini.history_rules import NAME, HistoryRules, check_contents, texts_of
from antiphon.testing.gemini.schema_rules import check_json_schema, check_parameters, check_schema
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.gemini.wire_shapes import SHAPES, Shapes, read_message
from antiphon.testing.rules import Range, ServerLimits
from antiphon.testing.script import ReceivedRequest


class GeminiLimits(ServerLimits, frozen=True, kw_only=True):
    """The limits of one server, beyond those of every dialect. A strict server refuses unknown fields everywhere."""

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
    #: Whether functions may be offered where the answer must be JSON; None leaves it to the model's name, as all below.
    json_with_tools: bool | None = None
    #: Whether the calls of the turn that is under way must have their signatures.
    signatures: bool | None = None


class ModelCall(Struct, frozen=True, kw_only=True):
    """The parts of the URL: the model, the method (`generateContent`), and the form of the answer."""

    model: str
    method: str
    sse: bool

    @property
    def streams(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def as_array(self) -> bool:
        """Whether the stream is one JSON array, because the client did not request events."""
        return self.streams and not self.sse


def parse_model_call(received: ReceivedRequest) -> ModelCall | None:
    """Parse the path of a model call; None if the path is not one."""
    path, _, query = received.path.partition("?")
    address = ADDRESS.fullmatch(unquote(path))
    return (
        ModelCall(model=address[1], method=address[2], sse="sse" in parse_qs(query).get("alt", ())) if address else None
    )


def check(call: ModelCall, received: ReceivedRequest, limits: GeminiLimits, signatures: Signatures) -> dict[str, Any]:
    """The body, every field under its camelCase name."""
    check_key(received, limits)
    _check_model(call, limits)
    body = read_body(received, "request", limits)
    _check_request(body, call.model, limits, signatures)
    return body


def check_count(
    call: ModelCall, received: ReceivedRequest, limits: GeminiLimits, signatures: Signatures
) -> dict[str, Any]:
    """The request whose tokens are to be counted."""
    check_key(received, limits)
    _check_model(call, limits)
    body = read_body(received, "countTokens", limits)
    # `contents` is "ignored when a generateContentRequest is set", and only one of the two may be there.
    if "contents" in body and "generateContentRequest" in body:
        raise GeminiRequestRefused("Request cannot have both `contents` and `generate_content_request`.")
    request: dict[str, Any] = body.get("generateContentRequest", {"contents": body.get("contents", [])})
    _check_request(request, call.model, limits, signatures)
    return request


def check_key(received: ReceivedRequest, limits: GeminiLimits) -> None:
    """The key stands in a header or in the address."""
    if limits.key is None:
        return
    in_address = parse_qs(received.path.partition("?")[2]).get("key", [""])
    key = received.headers.get("x-goog-api-key", in_address[0])
    # 403 for no key at all: "Method doesn't allow unregistered callers"
    if not key:
        raise GeminiRequestRefused("Method doesn't allow unregistered callers. Please use API Key.", status=403)
    # 400 for a wrong one, with the reason API_KEY_INVALID
    if key != limits.key:
        raise GeminiRequestRefused(
            "API key not valid. Please pass a valid API key.", details=[error_info("API_KEY_INVALID")]
        )


def read_body(received: ReceivedRequest, shape: str, limits: GeminiLimits) -> dict[str, Any]:
    # It says "Invalid JSON payload received. Unexpected token."
    if not isinstance(received.json, dict):
        raise GeminiRequestRefused("Invalid JSON payload received. Expected an object.")
    body, violations = read_message(received.json, shape, _shapes(limits))
    if violations and limits.strict:
        # All that is wrong with the shape is told at once: in the message, and field by field in the details.
        raise GeminiRequestRefused("\n".join(wrong for _, wrong in violations), details=[field_violations(violations)])
    return dict(body)


def prompt_chars(body: dict[str, Any]) -> int:
    """How long the conversation is, in characters of text."""
    contents = [body.get("systemInstruction"), *(body.get("contents") or ())]
    return sum(len(text) for content in contents for text in texts_of(content))


def generation(model: str) -> int | None:
    """The number in the model's name, as in `gemini-3-pro`; None if there is none."""
    number = GENERATION.search(model)
    return int(number[1]) if number else None


def signs_calls(model: str, limits: GeminiLimits) -> bool:
    """Whether the calls of this model are signed, and must come back so: from the third generation on."""
    return (generation(model) or 0) >= 3 if limits.signatures is None else limits.signatures


def _check_request(body: dict[str, Any], model: str, limits: GeminiLimits, signatures: Signatures) -> None:
    if limits.strict:
        manner = HistoryRules(
            alternation=limits.alternation, last_word=limits.last_word, signed=signs_calls(model, limits)
        )
        check_contents(body.get("contents"), signatures, manner)
        _check_instruction(body.get("systemInstruction"))
        names = _check_tools(body.get("tools", []), model, limits)
        _check_choice(body.get("toolConfig", {}).get("functionCallingConfig"), names)
        _check_config(body.get("generationConfig", {}), model, names, limits)
    chars = prompt_chars(body)
    # It says "The input token count (N) exceeds the maximum number of tokens allowed (M)."
    if limits.max_chars is not None and chars > limits.max_chars:
        raise GeminiRequestRefused(
            f"The input token count ({chars}) exceeds the maximum number of tokens allowed ({limits.max_chars})."
        )


def _check_model(call: ModelCall, limits: GeminiLimits) -> None:
    # 404: "models/x is not found for API version v1beta, or is not supported for generateContent."
    if limits.models is not None and call.model not in limits.models:
        raise GeminiRequestRefused(
            f"models/{call.model} is not found for API version v1beta, or is not supported for {call.method}.",
            status=404,
        )


def _shapes(limits: GeminiLimits) -> Shapes:
    shapes = dict(SHAPES)
    if limits.additional_properties:
        shapes["schema"] = {**SHAPES["schema"], "additionalProperties": "any"}
    if not limits.ids:
        # 'Unknown name "id" at 'contents[7].parts[0].function_response': Cannot find field.'
        for shape in ("functionCall", "functionResponse"):
            shapes[shape] = {name: kind for name, kind in SHAPES[shape].items() if name != "id"}
    return shapes


def _check_instruction(content: dict[str, Any] | None) -> None:
    if content is None:
        return
    parts = content.get("parts", [])
    # It says "system_instruction.parts: contents.parts must not be empty."
    if not parts:
        _refuse("system_instruction.parts", "contents.parts must not be empty.")
    for at, part in enumerate(parts):
        # It says "system_instruction.parts[0].data: required oneof field 'data' must have one initialized field", also
        # for ""; and "Currently, text only".
        if not part.get("text"):
            _refuse(
                f"system_instruction.parts[{at}].data",
                "required oneof field 'data' must have one initialized field: a text",
            )


# Tools.


def _check_tools(tools: list[dict[str, Any]], model: str, limits: GeminiLimits) -> list[str]:
    """The names of the functions."""
    names: list[str] = []
    for at, tool in enumerate(tools):
        # It says "tools[0].tool_type: required one_of 'tool_type' must have one initialized field"
        if not any(kind in tool and tool[kind] != [] for kind in tool):
            _refuse(f"tools[{at}].tool_type", "required one_of 'tool_type' must have one initialized field")
        for number, declaration in enumerate(tool.get("functionDeclarations", ())):
            name = _check_declaration(declaration, f"tools[{at}].function_declarations[{number}]", limits)
            # It says "Duplicate function declaration found: f"
            if name in names:
                raise GeminiRequestRefused(f"Duplicate function declaration found: {name}")
            names.append(name)
    # It says "Tool use with function calling is unsupported": before the third generation
    hosted = any(kind != "functionDeclarations" for tool in tools for kind in tool)
    if names and hosted and (generation(model) or 0) < 3:
        raise GeminiRequestRefused("Tool use with function calling is unsupported")
    return names


def _check_declaration(declaration: dict[str, Any], path: str, limits: GeminiLimits) -> str:
    name = declaration.get("name", "")
    # It says "Invalid function name. Must start with a letter or an underscore. Must be alphameric, underscores (_),
    # dots (.), colons (:) or dashes (-), with a maximum length of 64."
    if not NAME.fullmatch(name):
        _refuse(f"{path}.name", f"Invalid function name: {name!r} does not match {NAME.pattern}")
    for own, json_schema in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
        # Documented as mutually exclusive.
        if own in declaration and json_schema in declaration:
            _refuse(path, f"only one of {own} and {json_schema} may be set")
        if json_schema in declaration:
            check_json_schema(declaration[json_schema], f"{path}.{json_schema}")
    if "parametersJsonSchema" in declaration and declaration["parametersJsonSchema"].get("type") != "object":
        _refuse(f"{path}.parameters_json_schema", "functionDeclaration parameters schema should be of type OBJECT.")
    if "parameters" in declaration:
        check_parameters(declaration["parameters"], f"{path}.parameters", empty_objects=limits.empty_objects)
    return str(name)


def _check_choice(config: dict[str, Any] | None, names: list[str]) -> None:
    if config is None:
        return
    # It says "Function calling config is set without function_declarations."
    if not names:
        raise GeminiRequestRefused("Function calling config is set without function_declarations.")
    allowed = config.get("allowedFunctionNames", ())
    # It says "allowed_function_names should be set only when function calling mode is ANY", or the newer VALIDATED
    if allowed and config.get("mode") not in ("ANY", "VALIDATED"):
        _refuse(CHOICE, "allowed_function_names should be set only when function calling mode is ANY or VALIDATED.")
    for name in allowed:
        # It says "allowed_function_names should match function_declarations.name"
        if name not in names:
            _refuse(f"{CHOICE}.allowed_function_names", f"{name!r} is not one of function_declarations")


# Settings.


def _check_config(config: dict[str, Any], model: str, names: list[str], limits: GeminiLimits) -> None:
    for field, wanted in RANGES.items():
        # It says "temperature must be in the range [0.0, 2.0]."
        if field in config and not wanted.least <= config[field] <= wanted.most:
            _refuse(f"generation_config.{field}", f"{field} must be in the range [{wanted.least}, {wanted.most}].")
    # It says "the number of stop_sequences must be less than or equal to 5", and none of them may be empty
    stops = config.get("stopSequences", [])
    if len(stops) > 5 or not all(stops):
        _refuse("generation_config.stop_sequences", "at most 5 stop sequences, none of them empty")
    # It says "logprobs is only valid if response_logprobs=True"
    if "logprobs" in config and not config.get("responseLogprobs"):
        _refuse("generation_config.logprobs", "only valid if response_logprobs is true")
    _check_thinking(config.get("thinkingConfig", {}), model)
    _check_format(config, limits)
    as_json = config.get("responseMimeType", "text/plain") != "text/plain"
    together = (generation(model) or 0) >= 3 if limits.json_with_tools is None else limits.json_with_tools
    # It says "Function calling with a response mime type: 'application/json' is unsupported": before the third
    # generation
    if names and as_json and not together:
        raise GeminiRequestRefused(
            f"Function calling with a response mime type: '{config['responseMimeType']}' is unsupported"
        )


def _check_thinking(config: dict[str, Any], model: str) -> None:
    budget, level = config.get("thinkingBudget"), config.get("thinkingLevel")
    # It says "You can only set only one of thinking budget and thinking level."
    if budget is not None and level is not None:
        raise GeminiRequestRefused("You can only set only one of thinking budget and thinking level.")
    # It says "Thinking level is not supported for this model.": before the third generation
    if level is not None and (generation(model) or 3) < 3:
        raise GeminiRequestRefused("Thinking level is not supported for this model.")
    allowed = next(budgets for pattern, budgets in BUDGETS if pattern.search(model))
    # It says "The thinking budget (52428) is invalid. Please choose a value between 128 and 32768."; -1 lets the model
    # choose
    if budget is not None and budget != -1 and not any(range.least <= budget <= range.most for range in allowed):
        raise GeminiRequestRefused(f"The thinking budget ({budget}) is invalid.")


def _check_format(config: dict[str, Any], limits: GeminiLimits) -> None:
    kind = config.get("responseMimeType", "text/plain")
    # It says "response_mime_type: allowed mimetypes are `text/plain`, `application/json`, `application/xml`,
    # `application/yaml` and `text/x.enum`."
    if kind not in MIME_TYPES:
        _refuse("generation_config.response_mime_type", f"allowed mimetypes are {', '.join(MIME_TYPES)}.")
    # It says "If set, response_schema must be omitted, but response_mime_type is required."
    if "responseSchema" in config and "responseJsonSchema" in config:
        _refuse("generation_config", "only one of response_schema and response_json_schema may be set")
    if "responseSchema" in config:
        # It says "response_schema is only supported with response_mime_type 'application/json' or 'text/x.enum'"
        if kind == "text/plain":
            _refuse(
                "generation_config.response_schema",
                "only allowed when response_mime_type is application/json or text/x.enum",
            )
        check_schema(config["responseSchema"], "generation_config.response_schema", empty_objects=limits.empty_objects)
    if "responseJsonSchema" in config:
        if kind != "application/json":
            _refuse(
                "generation_config.response_json_schema", "only allowed when response_mime_type is application/json"
            )
        check_json_schema(config["responseJsonSchema"], "generation_config.response_json_schema")


def _refuse(path: str, wrong: str) -> NoReturn:
    raise GeminiRequestRefused(f"* GenerateContentRequest.{path}: {wrong}\n")


ADDRESS: Final = re.compile(r"/v1(?:beta|alpha)?/models/(.+):([A-Za-z]+)")
GENERATION: Final = re.compile(r"gemini-(\d+)")
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
