"""Cases of Gemini's `generateContent`, from the types of the SDK `google-genai`.

The SDK has no type of the body. It builds the body from `GenerateContentConfig`: some of its fields are members of the
body, the others are members of `generationConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from google.genai import types
from tests.identity.generator import Generator
from tests.identity.sdk_types import fields_of
from tests.identity.source import Case, Source, make_argument_object, make_schema, make_url
from typing_extensions import TypedDict


def make_case(generator: Generator, is_stream: bool) -> Case:
    generator.start_case(REQUEST)
    request = _make_request(generator)
    generator.start_case(types.GenerateContentResponse)
    return Case(request, list(_make_chunks(generator, request)) if is_stream else [_make_response(generator, request)])


# Requests


def _make_request(generator: Generator) -> dict[str, Any]:
    tools = [generator.object(types.Tool, **_one_tool(generator)) for _ in range(generator.random.randint(0, 2))]
    names = _tool_names(tools)
    contents = [_user_turn(generator)]
    for _ in range(generator.random.randint(0, 2)):
        contents += _make_answered_turn(generator, names)
    system = generator.object(types.Content, parts=[_part(generator, "text")], role=...)
    given: dict[str, Any] = {"systemInstruction": system if generator.chance(0.4) else ...}
    if not names:
        given["toolConfig"] = ...
    request = generator.object(REQUEST, contents=contents, tools=tools or ..., **given)
    if "generationConfig" in request:
        if generator.chance(0.2):
            given = {"thinkingLevel": generator.random.choice(("LOW", "HIGH")), "thinkingBudget": ...}
            request["generationConfig"]["thinkingConfig"] = generator.object(types.ThinkingConfig, **given)
        _settle_config(request["generationConfig"], generator)
    return request


def _settle_config(config: dict[str, Any], generator: Generator) -> None:
    """Some settings require or exclude others."""
    if "responseSchema" in config or "responseJsonSchema" in config:
        config["responseMimeType"] = "application/json"
        if len({"responseSchema", "responseJsonSchema"} & config.keys()) == 2:
            del config[generator.random.choice(("responseSchema", "responseJsonSchema"))]
    else:
        config.pop("responseMimeType", None)
    if "logprobs" in config:
        config["responseLogprobs"] = True


def _make_declaration(generator: Generator) -> dict[str, Any]:
    """A function has one schema of its arguments, and one of its result."""
    other = generator.random.choice(("parameters", "parametersJsonSchema"))
    result = generator.random.choice(("response", "responseJsonSchema"))
    return generator.object(types.FunctionDeclaration, **{other: ..., result: ...})


def _make_result_part(generator: Generator) -> dict[str, Any]:
    other = generator.random.choice(("inlineData", "fileData"))
    [kind] = {"inlineData", "fileData"} - {other}
    [hint] = [field.hint for field in fields_of(types.FunctionResponsePart) if field.name == kind]
    return generator.object(types.FunctionResponsePart, **{other: ..., kind: generator.value(hint)})


def _one_tool(generator: Generator) -> dict[str, Any]:
    """A tool is of one kind, most often functions."""
    kinds = [field.name for field in generator.fields(types.Tool)]
    kind = "functionDeclarations" if generator.chance() else generator.random.choice(kinds)
    return {name: ... for name in kinds if name != kind} | {kind: _required_tool(generator, kind)}


def _required_tool(generator: Generator, kind: str) -> Any:
    if kind == "functionDeclarations":
        return [_make_declaration(generator) for _ in range(generator.random.randint(1, 2))]
    [hint] = [field.hint for field in fields_of(types.Tool) if field.name == kind]
    return generator.value(hint)


def _tool_names(tools: list[dict[str, Any]]) -> list[str]:
    return [function["name"] for tool in tools for function in tool.get("functionDeclarations") or ()]


def _user_turn(generator: Generator) -> dict[str, Any]:
    kinds = ["text", *generator.random.sample(("inlineData", "fileData"), generator.random.randint(0, 1))]
    return generator.object(types.Content, role="user", parts=[_part(generator, kind) for kind in kinds])


def _make_answered_turn(generator: Generator, names: list[str]) -> Iterator[dict[str, Any]]:
    calls = _make_calls(generator, names)
    parts = [_part(generator, generator.random.choice(MODEL_PARTS))] if not calls or generator.chance() else []
    call_parts = [_part(generator, "functionCall", functionCall=call) for call in calls]
    yield generator.object(types.Content, role="model", parts=parts + call_parts)
    if not calls:
        yield _user_turn(generator)
        return
    responses = [_make_function_response(generator, call) for call in calls]
    yield generator.object(
        types.Content,
        role="user",
        parts=[_part(generator, "functionResponse", functionResponse=each) for each in responses],
    )


def _make_function_response(generator: Generator, call: dict[str, Any]) -> dict[str, Any]:
    response = generator.random.choice(({"result": generator.text()}, generator.json_object(), {"output": "ok"}))
    return generator.object(types.FunctionResponse, id=call.get("id", ...), name=call["name"], response=response)


def _make_calls(generator: Generator, names: list[str]) -> list[dict[str, Any]]:
    chosen = generator.random.choices(names, k=generator.random.randint(0, 2)) if names else []
    has_ids = generator.chance()
    return [
        generator.object(
            types.FunctionCall,
            id=generator.new_name("call") if has_ids else ...,
            name=name,
            args=make_argument_object(generator),
            partialArgs=...,
            willContinue=...,
        )
        for name in chosen
    ]


def _part(generator: Generator, kind: str, **given: Any) -> dict[str, Any]:
    """A part with content of one kind."""
    others = {name: ... for name in CONTENT_FIELDS if name != kind.partition(" ")[2] and name != kind}
    if kind == "thought":
        return generator.object(types.Part, **{**others, "text": generator.text(), "thought": True})
    if kind not in given:
        [hint] = [field.hint for field in fields_of(types.Part) if field.name == kind]
        given[kind] = generator.text() if kind == "text" else generator.value(hint)
    return generator.object(types.Part, **{**others, **given})


# Answers


def _make_response(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    count = (request.get("generationConfig") or {}).get("candidateCount") or 1
    candidates = [_make_candidate(generator, request, index, count) for index in range(count)]
    return generator.object(types.GenerateContentResponse, candidates=candidates)


def _make_candidate(generator: Generator, request: dict[str, Any], index: int, count: int) -> dict[str, Any]:
    content = generator.object(types.Content, role="model", parts=_answer_parts(generator, request))
    place = index if count > 1 or generator.chance() else ...
    return generator.object(types.Candidate, content=content, index=place, finishReason=_finish(generator))


def _answer_parts(generator: Generator, request: dict[str, Any]) -> list[dict[str, Any]]:
    mode = ((request.get("toolConfig") or {}).get("functionCallingConfig") or {}).get("mode")
    calls = [] if mode == "NONE" else _make_calls(generator, _tool_names(request.get("tools") or []))
    kinds = generator.random.sample(MODEL_PARTS, generator.random.randint(0 if calls else 1, 2))
    return [_part(generator, kind) for kind in kinds] + [
        _part(generator, "functionCall", functionCall=call) for call in calls
    ]


def _finish(generator: Generator) -> str:
    reasons = [reason.value for reason in types.FinishReason]
    return "STOP" if generator.chance() else generator.random.choice(reasons)


def _make_chunks(generator: Generator, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    count = (request.get("generationConfig") or {}).get("candidateCount") or 1
    head = {"responseId": generator.new_name("response"), "modelVersion": "server-model"}
    for index in range(count):
        place = index if count > 1 or generator.chance() else ...
        parts = [piece for part in _answer_parts(generator, request) for piece in _split_part(generator, part)]
        for number, part in enumerate(parts):
            content = generator.object(types.Content, role="model", parts=[part])
            finish = _finish(generator) if number == len(parts) - 1 else ...
            candidate = generator.object(types.Candidate, content=content, index=place, finishReason=finish)
            feedback = {} if number == 0 else {"promptFeedback": ...}
            yield generator.object(types.GenerateContentResponse, candidates=[candidate], **head, **feedback)


def _split_part(generator: Generator, part: dict[str, Any]) -> list[dict[str, Any]]:
    if "functionCall" in part and generator.chance(0.3):
        return _stream_arguments(generator, part)
    if "text" not in part:
        return [part]
    pieces = generator.split(part["text"])
    rest = {name: value for name, value in part.items() if name in ("thought",)}
    return [{**rest, "text": piece} for piece in pieces[:-1]] + [{**part, "text": pieces[-1]}]


def _stream_arguments(generator: Generator, part: dict[str, Any]) -> list[dict[str, Any]]:
    """The call of a part with its arguments in pieces; the values are texts."""
    call = {name: value for name, value in part["functionCall"].items() if name != "args"}
    pieces = [{**part, "functionCall": {**call, "willContinue": True}}]
    for name in part["functionCall"]["args"]:
        for argument in _partial_arguments(generator, f"$.{name}"):
            more = generator.object(
                types.FunctionCall, id=..., name=..., args=..., partialArgs=[argument], willContinue=True
            )
            pieces.append({"functionCall": more})
    return [*pieces, {"functionCall": {}}]


def _partial_arguments(generator: Generator, path: str) -> list[dict[str, Any]]:
    """The pieces of a text, or another value in one piece."""
    empty: dict[str, Any] = dict.fromkeys(("stringValue", "boolValue", "numberValue", "nullValue", "willContinue"), ...)
    kind = generator.random.choice(("stringValue", "boolValue", "numberValue", "nullValue"))
    if kind != "stringValue":
        value = generator.value({"boolValue": bool, "numberValue": float, "nullValue": Literal["NULL_VALUE"]}[kind])
        return [generator.object(types.PartialArg, **{**empty, "jsonPath": path, kind: value})]
    texts = generator.split(generator.text())
    return [
        generator.object(
            types.PartialArg,
            **{**empty, "jsonPath": path, "stringValue": text, "willContinue": number < len(texts) - 1 or ...},
        )
        for number, text in enumerate(texts)
    ]


def _make_request_types() -> tuple[Any, Any]:
    config = {field.name: field.hint for field in fields_of(types.GenerateContentConfig)}
    below = {name: hint for name, hint in config.items() if name not in TOP_LEVEL}
    below |= {field.name: field.hint for field in fields_of(types.GenerationConfig)}
    generation = TypedDict("GenerationConfig", below, total=False)  # type: ignore[misc]
    top = {name: hint for name, hint in config.items() if name in TOP_LEVEL}
    top["outputConfig"] = config["generationOutputConfig"]
    top |= {"contents": list[types.Content], "tools": list[types.Tool], "systemInstruction": types.Content}
    body = TypedDict("GenerateContentRequest", {**top, "generationConfig": generation}, total=False)  # type: ignore[misc]
    return body, generation


#: Fields of the SDK's configuration that are members of the body.
TOP_LEVEL: Final = frozenset(
    {
        *("systemInstruction", "safetySettings", "tools", "toolConfig", "labels", "cachedContent"),
        *("serviceTier", "continuationToken", "store", "modelArmorConfig"),
    }
)
#: The fields of a part of which one has the content.
CONTENT_FIELDS: Final = (
    *("text", "thought", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
    *("codeExecutionResult", "toolCall", "toolResponse"),
)
MODEL_PARTS: Final = (
    "text",
    "thought",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "inlineData",
)
REQUEST, GENERATION = _make_request_types()
SOURCE: Final = Source(
    dialect="gemini",
    roots=(REQUEST, types.GenerateContentResponse),
    make_case=make_case,
    rules={
        "FunctionDeclaration.name": lambda generator: generator.new_name("tool"),
        "FunctionDeclaration.parameters": lambda generator: generator.object(types.Schema, type="OBJECT"),
        "Schema.additionalProperties": Generator.chance,
        "FunctionDeclaration.parametersJsonSchema": make_schema,
        "FunctionDeclaration.responseJsonSchema": make_schema,
        "GenerationConfig.responseJsonSchema": make_schema,
        "GenerationConfig.responseMimeType": lambda _: "application/json",
        "GenerationConfig.candidateCount": lambda generator: generator.random.choice((1, 1, 2)),
        "GenerationConfig.logprobs": lambda generator: generator.random.randint(0, 20),
        "GenerationConfig.temperature": lambda generator: generator.random.randint(0, 20) / 10,
        "Blob.mimeType": lambda _: "image/png",
        "FunctionResponseBlob.mimeType": lambda _: "image/png",
        "FunctionResponseFileData.mimeType": lambda _: "image/png",
        "FunctionResponseFileData.fileUri": make_url,
        "FileData.mimeType": lambda _: "application/pdf",
        "FileData.fileUri": lambda generator: f"https://example.com/{generator.new_name('file')}.pdf",
        "FunctionResponse.parts": lambda generator: [_make_result_part(generator)],
        "Content.role": lambda _: "user",
    },
    left_out={
        "read by the SDK, and not sent": (
            "GenerationConfig.httpOptions",
            "GenerationConfig.shouldReturnHttpResponse",
            "GenerationConfig.automaticFunctionCalling",
            "GenerationConfig.automaticContinuation",
        ),
        "references must have a target": ("Schema.ref", "Schema.defs"),
        "sent as `outputConfig` of the body": ("GenerationConfig.generationOutputConfig",),
        "added by the SDK to what the server sent": (
            "GenerateContentResponse.sdkHttpResponse",
            "GenerateContentResponse.automaticFunctionCallingHistory",
            "GenerateContentResponse.parsed",
        ),
    },
    required=frozenset(
        {
            *("FunctionDeclaration.name", "Blob.data", "Blob.mimeType", "FileData.fileUri", "FileData.mimeType"),
            *("FunctionResponseBlob.data", "FunctionResponseBlob.mimeType"),
            *("FunctionResponseFileData.fileUri", "FunctionResponseFileData.mimeType"),
            *("Schema.type", "ExecutableCode.code", "CodeExecutionResult.outcome"),
        }
    ),
    has_null=False,
)
