"""Convert a request of the gemini dialect to a `Prompt` for `improvise`, and read its texts."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.rules.gemini.history import is_user
from antiphon.testing.improvise import OfferedTool, Prompt


def make_prompt(body: dict[str, Any]) -> Prompt:
    """Convert the request to a `Prompt`. Its fields have their camelCase names."""
    contents: list[dict[str, Any]] = body["contents"]
    last_user_index = max(
        (index for index, content in enumerate(contents) if is_user(content) and texts_of(content)), default=-1
    )
    last_content = contents[last_user_index] if last_user_index >= 0 else {}
    config = body.get("generationConfig") or {}
    tools, choice = _offered_tools(body)
    return Prompt(
        text=" ".join(texts_of(last_content)),
        media=len(values_in_parts(last_content, "inlineData")) + len(values_in_parts(last_content, "fileData")),
        results=_tool_results(contents[last_user_index + 1 :]),
        calls_before=sum(len(values_in_parts(content, "functionCall")) for content in contents),
        tools=tools,
        choice=choice,
        schema=_answer_schema(config),
        thinks=bool((config.get("thinkingConfig") or {}).get("includeThoughts")),
        max_pieces=config.get("maxOutputTokens"),
    )


def texts_of(content: Any) -> list[str]:
    """Return the texts of a content without thoughts; empty for any other value."""
    parts = content.get("parts") if isinstance(content, dict) else None
    visible_parts = (
        [part for part in parts if isinstance(part, dict) and not part.get("thought")]
        if isinstance(parts, list)
        else []
    )
    return [part["text"] for part in visible_parts if isinstance(part.get("text"), str)]


def values_in_parts(content: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """Return the values of this field (`functionCall`, `functionResponse`) in the parts of a content."""
    return [part[field] for part in content.get("parts", ()) if field in part]


def _tool_results(contents: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the tool results of the newest round of calls."""
    result_rounds = [results for content in contents if (results := values_in_parts(content, "functionResponse"))]
    return (
        tuple((result["name"], _result_text(result["response"])) for result in result_rounds[-1])
        if result_rounds
        else ()
    )


def _result_text(response: dict[str, Any]) -> str:
    """Return the text of a result: its `output`, its `error`, or else all of it."""
    value = next((response[name] for name in ("output", "result", "error") if name in response), response)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _offered_tools(body: dict[str, Any]) -> tuple[tuple[OfferedTool, ...], str]:
    """Return the tools that may be called, and the tool choice."""
    declarations = [
        declaration for tool in body.get("tools") or () for declaration in tool.get("functionDeclarations", ())
    ]
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    allowed_names = config.get("allowedFunctionNames") or [declaration["name"] for declaration in declarations]
    tools = [
        OfferedTool(declaration["name"], _parameters(declaration))
        for declaration in declarations
        if declaration["name"] in allowed_names
    ]
    return tuple(tools), TOOL_CHOICES.get(config.get("mode", "AUTO"), "auto")


def _parameters(declaration: dict[str, Any]) -> dict[str, Any]:
    own_schema = declaration.get("parameters")
    return dict(declaration.get("parametersJsonSchema") or {}) if own_schema is None else dict(_json_schema(own_schema))


def _answer_schema(config: dict[str, Any]) -> dict[str, Any] | None:
    if config.get("responseMimeType") != "application/json":
        return None
    own_schema = config.get("responseSchema")
    return dict(config.get("responseJsonSchema") or {}) if own_schema is None else dict(_json_schema(own_schema))


def _json_schema(schema: Any) -> Any:
    """Convert a schema of this API to a JSON schema, as far as `sample` needs it: with lower-case types."""
    if isinstance(schema, list):
        return [_json_schema(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: member.lower() if name == "type" and isinstance(member, str) else _json_schema(member)
        for name, member in schema.items()
    }


TOOL_CHOICES: Final = {"ANY": "required", "NONE": "none"}
